"""Single SGLang layers with their real quantisation methods, loaded as SGLang's loader does: what
shared/linear/engine.py asks for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hk_backend.config import get_config
from hk_backend.devices.cpu.isas import usable_isas
from hk_backend.engine.linear import route
from hk_backend.engine.linear.heads import Head
from tests.integration.hk_sglang import linear_checkpoints
from tests.integration.hk_sglang.restore import restored
from tests.integration.shared.checkpoints import WIDTHS, K, Shards
from tests.integration.shared.linear.named_tensors import ATTENTION, Model, widths_of

CHECKPOINTS = linear_checkpoints.CHECKPOINTS
MAPPING = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}


@contextmanager
def rank(number: int = 0, size: int = 1, device: str = "") -> Iterator[None]:
    """SGLang's configuration in one process of `size`, without the others, and HK on `device`, by
    default its own best: what `auto` leaves to torch on some machines is not the question here."""
    from sglang.srt.runtime_context import get_context, get_parallel

    with (
        pytest.MonkeyPatch.context() as patch,
        get_context().override_server_args(device="cpu", tp_size=size),
        get_parallel().override(tp_rank=number, attn_tp_rank=number, tp_size=size),
    ):
        patch.setenv("HK_DEVICE", device or f"cpu:{usable_isas()[0]}")
        read_again()
        yield
    read_again()


def alone() -> AbstractContextManager[None]:
    return rank()


@contextmanager
def on_rank(number: int, size: int, device: str) -> Iterator[Callable[..., Any]]:
    with rank(number, size, device):
        yield functools.partial(layer_named, torch.bfloat16)


def layer_named(dtype: torch.dtype, kind: str, *args: Any, **kwargs: Any) -> Any:
    from sglang.srt.layers import linear

    return made(getattr(linear, kind), dtype, *args, bias=False, **kwargs)


def register_linear() -> str:
    from hk_sglang.linear.install import register_linear

    return register_linear()


@contextmanager
def installed() -> Iterator[None]:
    """The linear route in this process, and SGLang as it was afterwards."""
    with restored():
        assert register_linear() == ""
        yield


def unquantised() -> tuple[Any, Any]:
    from sglang.srt.layers.quantization import unquant

    return unquant.UnquantizedLinearMethod, unquant.UnquantizedEmbeddingMethod


def register_method(patch: pytest.MonkeyPatch, name: str) -> Any:
    from sglang.srt.layers import quantization

    other = type("OtherConfig", (), {})
    patch.setitem(quantization.QUANTIZATION_METHODS, name, other)
    return other


def merged(
    config: Any, dtype: torch.dtype, k: int, widths: list[int], *, prefix: str = "model.qkv_proj"
) -> Any:
    from sglang.srt.layers.linear import MergedColumnParallelLinear

    return made(
        MergedColumnParallelLinear, dtype, k, widths, bias=False, quant_config=config, prefix=prefix
    )


def made(kind: Any, dtype: torch.dtype, *args: Any, **kwargs: Any) -> Any:
    """A module made with `dtype` as torch's default, as SGLang's loader makes a model."""
    from sglang.srt.model_loader.utils import set_default_torch_dtype

    with set_default_torch_dtype(dtype), torch.device("cpu"):
        return kind(*args, **kwargs)


def config_of(
    config: dict[str, Any], packed_modules_mapping: Mapping[str, list[str]] = MAPPING
) -> Any:
    """SGLang's reading of a `quantization_config`, of a model that has this mapping."""
    found = deepcopy(config)
    # as model_loader/weight_utils.py does
    found["packed_modules_mapping"] = dict(packed_modules_mapping)
    return method(found["quant_method"]).from_config(found)


def method(name: str) -> Any:
    from sglang.srt.layers.quantization import get_quantization_config

    return get_quantization_config(name)


def online(name: str) -> Any:
    return method(name)()


def why_left(layer: Any) -> str:
    from hk_sglang.linear.model import why_left

    return why_left(layer)


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


def loaded(
    config: Any,
    tensors: dict[str, torch.Tensor],
    prefix: str = f"{ATTENTION}.qkv_proj",
    dtype: torch.dtype = torch.bfloat16,
) -> Any:
    """The layer of a model whose checkpoint holds `tensors`."""
    from sglang.srt.model_loader.loader import DefaultModelLoader

    model = Model(merged(config, dtype, K, widths_of(prefix), prefix=prefix))
    DefaultModelLoader.load_weights_and_postprocess(
        model, iter(tensors.items()), torch.device("cpu")
    )
    return model.layer


def dummy(config: Any) -> Any:
    """A layer as `--load-format dummy` leaves it."""
    from sglang.srt.model_loader import loader

    layer = merged(config, torch.bfloat16, K, WIDTHS)
    loader.initialize_dummy_weights(Model(layer))
    layer.quant_method.process_weights_after_loading(layer)
    return layer


def reload(module: torch.nn.Module, tensors: Shards) -> None:
    load(module, tensors)


def experts() -> Any:
    from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE

    layer = object.__new__(FusedMoE)
    torch.nn.Module.__init__(layer)
    return layer


def account(model: torch.nn.Module) -> None:
    from hk_sglang.linear.model import account

    account(model)


def savers() -> list[Any]:
    from sglang.srt.model_loader.loader import RemoteModelLoader, ShardedStateLoader

    return [ShardedStateLoader, RemoteModelLoader]


class HeadedModel(torch.nn.Module):
    """A model of an LM head `lm_head`, which is the embedding if they are tied."""

    def __init__(self, vocabulary: int) -> None:
        from sglang.srt.layers.logits_processor import LogitsProcessor

        super().__init__()
        self.logits_processor = LogitsProcessor(SimpleNamespace(vocab_size=vocabulary))


def headed(
    asked: Head,
    table: torch.Tensor,
    *,
    tied: bool = False,
    number: int = 0,
    ranks: int = 1,
    why: str = "",
) -> Any:
    from hk_sglang.linear import model as route
    from hk_sglang.linear.head import share_table
    from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
    from sglang.srt.runtime_context import get_parallel

    model: Any = HeadedModel(len(table))
    with rank(number, ranks, get_config().device), get_parallel().override(tp_group=None):
        if tied:
            model.embed_tokens = made(VocabParallelEmbedding, table.dtype, *table.shape)
            model.lm_head = model.embed_tokens
        else:
            model.lm_head = made(ParallelLMHead, table.dtype, *table.shape)
        update(model, table)
        route.account(model, asked)
        model.why_table_stays = share_table(model, asked, why)
    return model


def update(model: Any, table: torch.Tensor) -> None:
    head = model.lm_head
    head.weight.weight_loader(head.weight, table)
    head.quant_method.process_weights_after_loading(head)


def logits(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model.logits_processor._compute_lm_head(x, model.lm_head)


def asked_of(config: dict[str, Any]) -> Head:
    from hk_sglang.linear import head

    hf_config = SimpleNamespace(quantization_config=deepcopy(config))
    facts = {"vocab_size": 300, "hidden_size": 96, "dtype": torch.bfloat16}
    return head.asked_of(SimpleNamespace(hf_config=hf_config, **facts), "cpu")


def forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
    return layer(x)[0]


def read_again() -> None:
    get_config.cache_clear()
    route._check_of.cache_clear()
