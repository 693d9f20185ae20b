"""Makes vLLM refuse to save a loaded model with packed weights.

vLLM's ways to save are `save_sharded_state` and `save_tensorized_model`.
"""

from __future__ import annotations

from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.model_executor.model_loader.tensorizer_loader import TensorizerLoader

from hk_backend.engine.linear.saving import refusing
from hk_backend.engine.patching import MARK


def install() -> None:
    """Changes both ways to save; harmless to call again."""
    for loader in (ShardedStateLoader, TensorizerLoader):
        save = loader.save_model
        if not hasattr(save, MARK):
            checked = refusing(save, "vLLM")
            setattr(checked, MARK, save)
            loader.save_model = staticmethod(checked)
