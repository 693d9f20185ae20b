"""Single SGLang layers with their real quantisation methods, loaded as SGLang's loader loads them.

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
from hk_sglang.linear import head
from hk_sglang.linear.head import share_table
from hk_sglang.linear.install import register_linear
from hk_sglang.linear.model import account, why_left
from sglang.srt.layers import linear, quantization
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.layers.quantization import get_quantization_config, unquant
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from sglang.srt.lora.layers import RowParallelLinearWithLoRA
from sglang.srt.model_loader import loader
from sglang.srt.model_loader.utils import set_default_torch_dtype
from sglang.srt.runtime_context import get_context, get_parallel

from hk_backend.config import get_config
from hk_backend.devices.cpu.isas import usable_isas
from hk_backend.engine.linear import route
from hk_backend.engine.linear.heads import Head
from tests.integration.hk_sglang import linear_checkpoints
from tests.integration.hk_sglang.restore import restored
from tests.integration.shared.checkpoints import WIDTHS, K
from tests.integration.shared.linear.named_tensors import ATTENTION, Model, widths_of

__all__ = ["account", "register_linear", "why_left"]
CHECKPOINTS = linear_checkpoints.CHECKPOINTS
MAPPING = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}


@contextmanager
def rank(number: int = 0, size: int = 1, device: str = "") -> Iterator[None]:
    """SGLang's configuration of one process out of `size`, which runs without the others.

    HK runs on `device`, by default on this machine's best. HK_DEVICE=auto would leave some layers
    to torch.
    """
    with (
        pytest.MonkeyPatch.context() as patch,
        get_context().override_server_args(device="cpu", tp_size=size),
        get_parallel().override(tp_rank=number, attn_tp_rank=number, tp_size=size),
    ):
        patch.setenv("HK_DEVICE", device or f"cpu:{usable_isas()[0]}")
        read_again()
        yield
    read_again()


alone = rank


@contextmanager
def on_rank(number: int, size: int, device: str) -> Iterator[Callable[..., Any]]:
    with rank(number, size, device):
        yield lambda kind, *args, **kwargs: made(
            getattr(linear, kind), torch.bfloat16, *args, bias=False, **kwargs
        )


@contextmanager
def installed() -> Iterator[None]:
    """Install the linear route in this process, and restore SGLang afterwards."""
    with restored():
        assert register_linear() == ""
        yield


def unquantised() -> tuple[Any, Any]:
    return unquant.UnquantizedLinearMethod, unquant.UnquantizedEmbeddingMethod


def register_method(patch: pytest.MonkeyPatch, name: str) -> Any:
    other = type("OtherConfig", (), {})
    patch.setitem(quantization.QUANTIZATION_METHODS, name, other)
    return other


def merged(
    config: Any, dtype: torch.dtype, k: int, widths: list[int], *, prefix: str = "model.qkv_proj"
) -> Any:
    return made(
        linear.MergedColumnParallelLinear,
        dtype,
        k,
        widths,
        bias=False,
        quant_config=config,
        prefix=prefix,
    )


def made(kind: Any, dtype: torch.dtype, *args: Any, **kwargs: Any) -> Any:
    """Make a module with `dtype` as torch's default, as SGLang's loader makes a model."""
    with set_default_torch_dtype(dtype), torch.device("cpu"):
        return kind(*args, **kwargs)


def adapted(layer: Any, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    facts = {"supports_lora_a_overlap": False, "skip_inactive_lora_batches": False}
    backend = SimpleNamespace(
        **facts,
        skip_inactive_dense_lora=False,
        get_batch_info=object,
        forward_with_base=lambda layer, x, base, *_, **__: base() + (x @ a.T) @ b.T,
    )
    wrapped = RowParallelLinearWithLoRA(layer, backend)
    wrapped.set_lora, wrapped.lora_a, wrapped.lora_b = True, a, b
    wrapped.output_offset, wrapped.lora_offsets = torch.tensor([0, len(b)]), (0, len(b))
    out: torch.Tensor = wrapped(x)[0]
    return out


def config_of(
    config: dict[str, Any], packed_modules_mapping: Mapping[str, list[str]] = MAPPING
) -> Any:
    """SGLang's configuration object for a `quantization_config` of a model with this mapping."""
    found = deepcopy(config)
    # model_loader/weight_utils.py does the same
    found["packed_modules_mapping"] = dict(packed_modules_mapping)
    return method(found["quant_method"]).from_config(found)


method = get_quantization_config


def online(name: str) -> Any:
    return method(name)()


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
    model = Model(merged(config, dtype, K, widths_of(prefix), prefix=prefix))
    loader.DefaultModelLoader.load_weights_and_postprocess(
        model, iter(tensors.items()), torch.device("cpu")
    )
    return model.layer


def dummy(config: Any) -> Any:
    """A layer as `--load-format dummy` leaves it."""
    layer = merged(config, torch.bfloat16, K, WIDTHS)
    loader.initialize_dummy_weights(Model(layer))
    layer.quant_method.process_weights_after_loading(layer)
    return layer


reload = load


def experts() -> Any:
    layer = object.__new__(FusedMoE)
    torch.nn.Module.__init__(layer)
    return layer


def savers() -> list[Any]:
    return [loader.ShardedStateLoader, loader.RemoteModelLoader]


class HeadedModel(torch.nn.Module):
    """A model with an LM head `lm_head`, which is the embedding if the two are tied."""

    def __init__(self, vocabulary: int) -> None:
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
    model: Any = HeadedModel(len(table))
    with rank(number, ranks, get_config().device), get_parallel().override(tp_group=None):
        if tied:
            model.embed_tokens = made(VocabParallelEmbedding, table.dtype, *table.shape)
            model.lm_head = model.embed_tokens
        else:
            model.lm_head = made(ParallelLMHead, table.dtype, *table.shape)
        update(model, table)
        account(model, asked)
        model.why_table_stays = share_table(model, asked, why)
    return model


def update(model: Any, table: torch.Tensor) -> None:
    layer = model.lm_head
    layer.weight.weight_loader(layer.weight, table)
    layer.quant_method.process_weights_after_loading(layer)


def logits(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model.logits_processor._compute_lm_head(x, model.lm_head)


def head_requested_by(config: dict[str, Any], dtype: torch.dtype = torch.bfloat16) -> Head:
    hf_config = SimpleNamespace(quantization_config=deepcopy(config))
    facts = {"vocab_size": 300, "hidden_size": 96, "dtype": dtype}
    return head.head_requested_by(SimpleNamespace(hf_config=hf_config, **facts), "cpu")


def forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
    return layer(x)[0]


def read_again() -> None:
    get_config.cache_clear()
    route._check_of.cache_clear()
