"""Single SGLang layers with their real quantisation methods, loaded as SGLang's loader does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch

from hk_backend.config import get_config
from hk_backend.devices.cpu.isas import usable_isas
from hk_backend.engine.linear import route
from hk_backend.routing.routes import routes
from tests.integration.shared.linear_checkpoints import WIDTHS, Checkpoint, K, Shards

MAPPING = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}


@contextmanager
def rank(number: int = 0, size: int = 1) -> Iterator[None]:
    """SGLang's configuration in one process of `size`, without the others, and HK's own best
    device: what `auto` leaves to torch on some machines is not the question here."""
    from sglang.srt.runtime_context import get_context, get_parallel

    with (
        pytest.MonkeyPatch.context() as patch,
        get_context().override_server_args(device="cpu", tp_size=size),
        get_parallel().override(tp_rank=number, attn_tp_rank=number, tp_size=size),
    ):
        patch.setenv("HK_DEVICE", f"cpu:{usable_isas()[0]}")
        read_again()
        yield
    read_again()


@contextmanager
def installed() -> Iterator[None]:
    """The linear route in this process, and SGLang as it was afterwards."""
    with restored():
        from hk_sglang.linear.install import register_linear

        assert register_linear() == ""
        yield


@contextmanager
def restored() -> Iterator[None]:
    """Fresh counters; whatever of SGLang the route changes is put back at the end."""
    from sglang.srt.arg_groups import choices
    from sglang.srt.layers import linear, quantization

    changed = [(owner, dict(vars(owner))) for owner in _changed()]
    tables = [
        getattr(quantization, f"{prefix}QUANTIZATION_METHODS") for prefix in ("", "BASE_", "CPU_")
    ]
    known = [dict(table) for table in tables]
    lists = [linear.WEIGHT_LOADER_V2_SUPPORTED, choices.QUANTIZATION_CHOICES]
    listed = [list(each) for each in lists]
    routes.reset()
    try:
        yield
    finally:
        routes.reset()
        for owner, members in changed:
            for name in [name for name in vars(owner) if name not in members]:
                delattr(owner, name)
            for name, member in members.items():
                if vars(owner)[name] is not member:
                    setattr(owner, name, member)
        for table, content in zip(tables, known, strict=True):
            table.clear()
            table.update(content)
        for each, before in zip(lists, listed, strict=True):
            each[:] = before


def _changed() -> list[Any]:
    """The classes and modules of SGLang that the linear route changes."""
    from hk_sglang.linear import head, loading, model, reading, schemes, unquantized
    from sglang.srt.layers.linear import LinearBase
    from sglang.srt.plugins.hook_registry import HookRegistry

    HookRegistry._hooks.pop("sglang.srt.configs.model_config.ModelConfig._verify_quantization", 0)
    return [
        LinearBase,
        unquantized.UnquantizedLinearMethod,
        head.UnquantizedEmbeddingMethod,
        head.LogitsProcessor,
        model.ModelRunner,
        loading.DefaultModelLoader,
        *loading.PREPARED,
        loading.SchedulerWeightUpdaterManager,
        loading.loader,
        loading.weight_updater,
        reading.weight_updater,
        reading.WeightExporter,
        *schemes.CONFIGS,
    ]


def merged(
    config: Any, dtype: torch.dtype, k: int, widths: list[int], *, prefix: str = "model.qkv_proj"
) -> Any:
    """A merged layer of `widths` output features under quantisation `config`, not yet loaded."""
    from sglang.srt.layers.linear import MergedColumnParallelLinear

    return made(
        MergedColumnParallelLinear, dtype, k, widths, bias=False, quant_config=config, prefix=prefix
    )


def made(kind: Any, dtype: torch.dtype, *args: Any, **kwargs: Any) -> Any:
    """A module made with `dtype` as torch's default, as SGLang's loader makes a model."""
    from sglang.srt.model_loader.utils import set_default_torch_dtype

    with set_default_torch_dtype(dtype), torch.device("cpu"):
        return kind(*args, **kwargs)


def config_of(config: dict[str, Any]) -> Any:
    """SGLang's reading of a `quantization_config`."""
    from sglang.srt.layers.quantization import get_quantization_config

    found = deepcopy(config)
    found["packed_modules_mapping"] = dict(MAPPING)  # as model_loader/weight_utils.py does
    return get_quantization_config(found["quant_method"]).from_config(found)


def layer_of(checkpoint: Checkpoint, shards: Shards) -> Any:
    """The layer of a model whose checkpoint holds `shards`."""
    return load(merged(config_of(checkpoint.config), torch.bfloat16, K, WIDTHS), shards)


def load(layer: Any, shards: Mapping[str, list[torch.Tensor]]) -> Any:
    """Give `layer` its checkpoint's tensors, by parameter, one for each shard, and process them."""
    put(layer, shards)
    layer.quant_method.process_weights_after_loading(layer)
    return layer


def put(layer: Any, shards: Mapping[str, list[torch.Tensor]], first: int = 0) -> None:
    """Give `layer` tensors of the shards from `first` on."""
    for name, values in shards.items():
        for index, value in enumerate(values, first):
            parameter = layer.get_parameter(name)
            parameter.weight_loader(parameter, value, index)


def values(shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def environment(patch: pytest.MonkeyPatch, **values: str) -> None:
    """Set HK_* variables and have them read again."""
    for name, value in values.items():
        patch.setenv(name, value)
    read_again()


def read_again() -> None:
    get_config.cache_clear()
    route._check_of.cache_clear()
