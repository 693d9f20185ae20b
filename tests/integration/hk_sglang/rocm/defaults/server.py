"""An SGLang server for one kind of attention, as it starts on an MI355X.

Its resolution of arguments, model class, pool and attention backend are SGLang's own, in a process
of machine.py. Memory is the CPU's, and there are no weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed import parallel_state
from sglang.srt.layers.quantization.kv_cache import BaseKVCacheMethod
from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype
from sglang.srt.mem_cache.kv_index_translator import KVIndexTranslator
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.model_executor.model_runner_components.load_model_utils import (
    resolve_sliding_window_size,
)
from sglang.srt.models import gemma3_causal, gpt_oss, llama, mistral, qwen3
from sglang.srt.runtime_context import SpawnRanks, get_model, get_spec, publish
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from torch.overrides import TorchFunctionMode

from tests.integration.hk_sglang.attention.batch import Server
from tests.integration.hk_sglang.rocm.defaults.settings import Setting, arguments_of
from tests.integration.shared.defaults.models import WINDOW, Attention
from tests.integration.shared.defaults.traffic import CHECKPOINT, Traffic

SCALES = (0.25, 2.0)
"""Scales of a checkpoint's keys and values: powers of two, so that scaling rounds nothing."""
PLAIN: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}
ALTERNATING: dict[str, Any] = {
    "num_hidden_layers": 2,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
}
FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "Llama": (llama.LlamaForCausalLM, {"model_type": "llama"}),
    "Qwen3": (qwen3.Qwen3ForCausalLM, {"model_type": "qwen3"}),
    "Mistral": (
        mistral.MistralForCausalLM,
        {"model_type": "mistral", "sliding_window": WINDOW},
    ),
    "gpt-oss": (
        gpt_oss.GptOssForCausalLM,
        {"model_type": "gpt_oss", "num_local_experts": 2, "num_experts_per_tok": 1, **ALTERNATING},
    ),
    "Gemma": (
        gemma3_causal.Gemma3ForCausalLM,
        {"model_type": "gemma3_text", "query_pre_attn_scalar": 256, **ALTERNATING},
    ),
}
"""SGLang's model class and a checkpoint's entries, by the first word of an attention's name."""


def server_of(attention: Attention, setting: Setting, traffic: Traffic) -> DefaultServer:
    """The server that SGLang makes of a model with such layers, started with this setting."""
    family, config = FAMILIES[attention.name.replace(",", " ").split()[0]]
    folder = _checkpoint(attention, json.dumps({"architectures": [family.__name__], **config}))
    arguments = arguments_of(setting, traffic)
    server_args = ServerArgs(model_path=folder, skip_tokenizer_init=True, **arguments)
    publish(server_args, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0))
    model_config = ModelConfig.from_server_args(server_args)
    _one_rank()
    with torch.device("meta"):
        model = family(config=model_config.hf_config)
    if traffic.cache == CHECKPOINT:
        model.quant_config = SimpleNamespace(kv_cache_quant_algo="FP8")
    _, kv_dtype = configure_kv_cache_dtype(
        server_args_kv_cache_dtype=get_model().kv_cache_dtype,
        model=model,
        model_dtype=model_config.dtype,
        is_draft_worker=False,
        is_dflash=False,
        speculative_draft_attention_backend="",
    )
    resolved = resolved_view(server_args)
    prefill, decode = attention_backends_of(resolved)
    assert prefill == decode
    return DefaultServer(
        page_size=resolved.page_size,
        dtype=model_config.dtype,
        kv_dtype=kv_dtype,
        windows=tuple(model_config.swa_attention_layer_ids) if model_config.is_hybrid_swa else (),
        name=prefill,
        head_size=model_config.head_dim,
        num_heads=model_config.num_attention_heads,
        num_kv_heads=model_config.get_num_kv_heads(1),
        made=model,
        model_config=model_config,
        server_args=server_args,
        scaled=traffic.cache == CHECKPOINT,
    )


class DefaultServer(Server):
    """A server with SGLang's defaults. `made`: its model; `scaled`: its checkpoint has `SCALES`."""

    def __init__(
        self,
        *,
        made: Any,
        model_config: ModelConfig,
        server_args: ServerArgs,
        scaled: bool,
        **fields: Any,
    ) -> None:
        self.made, self.model_config, self.server_args = made, model_config, server_args
        self.scaled = scaled
        super().__init__(**fields)

    def layer_of(self, attention: Attention) -> int:
        """The index of a layer of the kind that `attention` is."""
        windows = [layer.sliding_window_size > -1 for layer in self.attention]
        return windows.index(attention.window is not None and any(windows))

    def window_of(self, index: int) -> int | None:
        """Number of keys that a query sees, its own included. SGLang counts those before it."""
        behind = self.attention[index].sliding_window_size
        return behind + 1 if behind > -1 else None

    def _model(self) -> Any:
        if self.scaled:
            for layer in self.made.modules():
                if hasattr(layer, "k_scale_float"):
                    _load_scales(layer)
        return self.made

    def _facts(self) -> dict[str, Any]:
        allocator = SimpleNamespace(get_kvcache=lambda: self.pool)
        runner = SimpleNamespace(
            spec_algorithm=SpeculativeAlgorithm.from_string(get_spec().speculative_algorithm),
            server_args=self.server_args,
            is_draft_worker=False,
        )
        runner.decode_num_tokens_per_req = ModelRunner.decode_num_tokens_per_req.__get__(runner)
        return {
            **super()._facts(),
            **vars(runner),
            "model_config": self.model_config,
            "sliding_window_size": resolve_sliding_window_size(self.made, self.model_config),
            "token_to_kv_pool_allocator": allocator,
            "kv_index_translator": KVIndexTranslator(
                req_to_token=self.tables.req_to_token,
                token_to_kv_pool_allocator=allocator,
                token_to_kv_pool=self.pool,
                page_size=self.page_size,
                device="cpu",
            ),
            "gpu_id": 0,
        }


def _load_scales(layer: Any) -> None:
    """Give the layer its scales, as a checkpoint's loader does."""
    method = BaseKVCacheMethod(SimpleNamespace())
    method.create_weights(layer)
    layer.k_scale.data, layer.v_scale.data = (torch.tensor(scale) for scale in SCALES)
    method.process_weights_after_loading(layer)


@cache
def _checkpoint(attention: Attention, facts: str) -> str:
    """A folder with as much of a model as SGLang's arguments ask about."""
    folder = Path(mkdtemp())
    config = {
        **PLAIN,
        **json.loads(facts),
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.num_kv_heads,
        "head_dim": attention.head_size,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@cache
def _one_rank() -> None:
    """Make the process groups that models ask for, of a server with one GPU."""
    with _on_host():
        parallel_state.init_distributed_environment(
            backend="gloo",
            world_size=1,
            rank=0,
            local_rank=0,
            distributed_init_method=f"file://{mkdtemp()}/rank",
        )
        parallel_state.initialize_model_parallel()


@contextmanager
def _on_host() -> Iterator[None]:
    """Let SGLang allocate the host's memory where it asks for the GPU's."""
    with _OnHost():
        yield


class _OnHost(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def host(value: Any) -> Any:
            return "cpu" if str(value).startswith("cuda") else value

        named = {name: host(value) for name, value in (kwargs or {}).items()}
        return func(*map(host, args), **named)
