"""vLLM's ways of saving a loaded model (`save_sharded_state`, `save_tensorized_model`)."""

from __future__ import annotations

from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.model_executor.model_loader.tensorizer_loader import TensorizerLoader

from hk_backend.engine.linear.saving import refusing
from hk_backend.engine.patching import MARK


def install() -> None:
    """Have both refuse packed weights; harmless to call again."""
    for loader in (ShardedStateLoader, TensorizerLoader):
        save = loader.save_model
        if not hasattr(save, MARK):
            checked = refusing(save, "vLLM")
            setattr(checked, MARK, save)
            loader.save_model = staticmethod(checked)
