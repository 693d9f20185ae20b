"""Single vLLM layers with their real quantisation methods, loaded as vLLM's loaders load them.

The module implements the protocol of shared/linear/engine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hk_backend.config import get_config
from hk_backend.devices.cpu.isas import usable_isas
from hk_backend.engine.linear.heads import Head, requesting
from tests.integration.hk_vllm.restore import restored
from tests.integration.shared.checkpoints import LAYERS, WIDTHS, K
from tests.integration.shared.linear.named_tensors import ATTENTION, Model, widths_of

CHECKPOINTS = LAYERS


@contextmanager
def alone() -> Iterator[None]:
    """vLLM's configuration and distributed state of a single rank, with HK on its best device.

    HK_DEVICE=auto would leave some layers to torch.
    """
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state

    config = VllmConfig()
    with pytest.MonkeyPatch.context() as patch, set_current_vllm_config(config):
        patch.setenv("HK_DEVICE", f"cpu:{usable_isas()[0]}")
        get_config.cache_clear()
        if not parallel_state.model_parallel_is_initialized():
            parallel_state.init_distributed_environment(1, 0, "tcp://127.0.0.1:0", 0, "gloo")
            parallel_state.initialize_model_parallel(1, 1)
        config.scheduler_config.max_num_batched_tokens = 520
        config.model_config = SimpleNamespace(dtype=torch.bfloat16, head_dtype=torch.bfloat16)
        yield
    get_config.cache_clear()


@contextmanager
def on_rank(number: int, size: int, device: str) -> Iterator[Callable[..., Any]]:
    """Let layers and parameters find rank `number` of `size`; nothing goes to other ranks."""
    from vllm.model_executor import parameter
    from vllm.model_executor.layers import linear
    from vllm.utils.torch_utils import set_default_torch_dtype

    def made(kind: str, *args: Any, **kwargs: Any) -> Any:
        with set_default_torch_dtype(torch.bfloat16):
            return getattr(linear, kind)(*args, bias=False, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        for module in (linear, parameter):
            patch.setattr(module, "get_tensor_model_parallel_rank", lambda: number)
            patch.setattr(module, "get_tensor_model_parallel_world_size", lambda: size)
        yield made


def register_linear() -> str:
    from hk_vllm.linear.install import register_linear

    return register_linear()


@contextmanager
def installed() -> Iterator[None]:
    """Install the linear route in this process, and restore vLLM afterwards."""
    with restored():
        assert register_linear() == ""
        yield


def unquantised() -> tuple[Any, Any]:
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    return UnquantizedLinearMethod, UnquantizedEmbeddingMethod


def register_method(patch: pytest.MonkeyPatch, name: str) -> Any:
    from vllm.model_executor.layers import quantization

    other = type("OtherConfig", (quantization.QuantizationConfig,), {})
    return quantization.register_quantization_config(name)(other)


def merged(
    config: Any, dtype: torch.dtype, k: int, widths: list[int], *, prefix: str = "model.qkv_proj"
) -> Any:
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear
    from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
    from vllm.utils.torch_utils import set_default_torch_dtype

    if config is not None:
        config.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
    with set_default_torch_dtype(dtype):
        layer = MergedColumnParallelLinear(
            k, widths, bias=False, quant_config=config, prefix=prefix, return_bias=False
        )
    record_metadata_for_reloading(layer)
    return layer


def experts() -> Any:
    from vllm.model_executor.layers.fused_moe import RoutedExperts

    layer = object.__new__(RoutedExperts)
    torch.nn.Module.__init__(layer)
    for part in ("gate", "up", "down"):
        setattr(layer, f"ckpt_{part}_proj_name", f"{part}_proj")
    return layer


def account(model: torch.nn.Module) -> None:
    from hk_vllm.linear.model import account

    account(model)


def savers() -> list[Any]:
    from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
    from vllm.model_executor.model_loader.tensorizer_loader import TensorizerLoader

    return [ShardedStateLoader, TensorizerLoader]


def adapted(layer: Any, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    from vllm.lora.layers import RowParallelLinearWithLoRA

    wrapped = RowParallelLinearWithLoRA(layer)
    wrapped.lora_a_stacked = wrapped.lora_b_stacked = ()
    wrapped.output_slices = (len(b),)
    wrapped.punica_wrapper = SimpleNamespace(
        add_lora_linear=lambda out, x, *_, **__: out.add_((x @ a.T) @ b.T)
    )
    out: torch.Tensor = wrapped.apply(x)
    return out


def config_of(config: dict[str, Any]) -> Any:
    """vLLM's configuration object for a `quantization_config`."""
    from vllm.model_executor.layers.quantization import modelopt

    config = deepcopy(config)
    if config.get("quant_algo") == "MXFP8":
        return modelopt.ModelOptMxFp8Config.from_config(config)
    name = config["quant_method"]
    # vLLM asks each of its configurations whether the checkpoint is its own; INC's says so
    return method("inc" if name == "auto-round" else name).from_config(config)


def method(name: str) -> Any:
    from vllm.model_executor.layers.quantization import get_quantization_config

    return get_quantization_config(name)


def online(name: str) -> Any:
    return method(name).from_config_dict_json("{}")


def why_left(layer: Any) -> str:
    from hk_vllm.linear.model import why_left

    return why_left(layer) or ""


def load(layer: Any, shards: Mapping[str, list[torch.Tensor]]) -> Any:
    """Give `layer` its checkpoint's tensors, by parameter, one for each shard, and process them.

    The model's dtype is torch's default meanwhile, as in vLLM's loader.
    """
    from vllm.utils.torch_utils import set_default_torch_dtype

    for name, values in shards.items():
        for index, value in enumerate(values):
            parameter = layer.get_parameter(name)
            parameter.weight_loader(parameter, value, index)
    with set_default_torch_dtype(layer.params_dtype):
        layer.quant_method.process_weights_after_loading(layer)
    return layer


def reload(module: torch.nn.Module, tensors: dict[str, list[torch.Tensor]]) -> None:
    """Reload in place as vLLM does: `tensors` by the module's parameters, one for each shard."""
    from vllm.model_executor.model_loader.reload import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )

    initialize_layerwise_reload(module)
    for name, shards in tensors.items():
        for index, value in enumerate(shards):
            parameter: Any = module.get_parameter(name)
            arguments = (parameter, value, index) if len(shards) > 1 else (parameter, value)
            parameter.weight_loader(*arguments)
    finalize_layerwise_reload(module, SimpleNamespace(dtype=torch.bfloat16))


def loaded(
    config: Any,
    tensors: dict[str, torch.Tensor],
    prefix: str = f"{ATTENTION}.qkv_proj",
    dtype: torch.dtype = torch.bfloat16,
) -> Any:
    """The layer of a model whose checkpoint holds `tensors`."""
    from vllm.config import LoadConfig
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    from vllm.model_executor.model_loader.reload import finalize_layerwise_processing

    layer = merged(config, dtype, K, widths_of(prefix), prefix=prefix)
    model = Model(layer)
    loader = DefaultModelLoader(LoadConfig())
    loader._get_weights_iterator = lambda source: iter(tensors.items())
    facts = SimpleNamespace(
        model="", revision=None, quantization="", is_moe=False, multimodal_config=None
    )
    loader.load_weights(model, facts)
    if not getattr(config, "serialized", True):
        finalize_layerwise_processing(model, SimpleNamespace(dtype=dtype))
    layer.quant_method.process_weights_after_loading(layer)
    return layer


def dummy(config: Any) -> Any:
    """A layer as `--load-format dummy` leaves it."""
    from vllm.config import LoadConfig, get_current_vllm_config
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

    with pytest.MonkeyPatch.context() as patch:
        if not getattr(config, "serialized", True):
            patch.setattr(get_current_vllm_config().load_config, "load_format", "dummy")
        layer = merged(config, torch.bfloat16, K, WIDTHS)
        DummyModelLoader(LoadConfig(load_format="dummy")).load_weights(Model(layer), None)
        layer.quant_method.process_weights_after_loading(layer)
    return layer


def headed(
    asked: Head,
    table: torch.Tensor,
    *,
    tied: bool = False,
    number: int = 0,
    ranks: int = 1,
    why: str = "",
) -> Any:
    """A model with an LM head, and with an embedding if the two are tied."""
    from hk_vllm.linear.tied import share_table
    from vllm.model_executor.layers import vocab_parallel_embedding as vocabulary
    from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
    from vllm.utils.torch_utils import set_default_torch_dtype

    model: Any = torch.nn.Module()
    with pytest.MonkeyPatch.context() as patch, set_default_torch_dtype(table.dtype):
        patch.setattr(vocabulary, "get_tensor_model_parallel_rank", lambda: number)
        patch.setattr(vocabulary, "get_tensor_model_parallel_world_size", lambda: ranks)
        if tied:
            model.embed_tokens = vocabulary.VocabParallelEmbedding(*table.shape)
        model.lm_head = vocabulary.ParallelLMHead(*table.shape, prefix="lm_head")
    if tied:
        model.lm_head = model.lm_head.tie_weights(model.embed_tokens)
    record_metadata_for_reloading(model)
    first = model.embed_tokens if tied else model.lm_head
    first.weight_loader(first.weight, table)
    with requesting(asked):
        for layer in model.children():
            layer.quant_method.process_weights_after_loading(layer)
        model.why_table_stays = share_table(model, why)
    return model


def update(model: Any, table: torch.Tensor) -> None:
    """Reload the LM head's table; vLLM reloads the embedding alone if the two are tied."""
    tied = hasattr(model, "embed_tokens")
    reload(model, {"embed_tokens.weight" if tied else "lm_head.weight": [table]})


def logits(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model.lm_head.quant_method.apply(model.lm_head, x)


def head_requested_by(config: dict[str, Any], dtype: torch.dtype = torch.bfloat16) -> Head:
    from hk_vllm.linear import head

    model_config = SimpleNamespace(
        quantization=config["quant_method"],
        hf_config=SimpleNamespace(quantization_config=deepcopy(config)),
        dtype=dtype,
        get_vocab_size=lambda: 300,
        get_hidden_size=lambda: 96,
    )
    of_target = SimpleNamespace(quant_config=None)
    if config["quant_method"].startswith("hk_"):
        of_target.quant_config = config_of(config)
    return head.head_requested_by(of_target, model_config)


def forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
    return layer(x)
