"""HK's kernels in vLLM's lists: refused with a reason, and subject to vLLM's own switches.

Other tests hold FP8 in blocks of 128x128 where merged shards end within a block. No kernel finds
the scales of such blocks in the place where vLLM stores them.
"""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm.model_executor.kernels.linear as lists
from hk_vllm.linear import created, fp8_kernels, model, mx_kernels
from hk_vllm.linear.created import LATENT
from hk_vllm.linear.kernel import HKKernel
from vllm.model_executor.kernels.linear.mxfp4.base import MxFp4LinearKernel
from vllm.model_executor.kernels.linear.mxfp8.Mxfp8LinearKernel import Mxfp8LinearKernel
from vllm.model_executor.kernels.linear.scaled_mm.cpu import (
    CPUFp8BlockScaledMMKernel,
    CPUFp8W8A8BlockScaledMMKernel,
)
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    GroupShape,
    create_fp8_quant_key,
    kFp8Dynamic64Sym,
    kFp8Dynamic128Sym,
    kFp8DynamicTensorSym,
    kFp8DynamicTokenSym,
    kFp8Static128BlockSym,
    kFp8StaticChannelSym,
    kFp8StaticTensorSym,
    kMxfp6E2M3Static,
    kMxfp6E3M2Dynamic,
)
from vllm.platforms import PlatformEnum

from hk_backend import reference
from hk_backend.engine.linear.rotated import RotationError
from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_vllm import linear_layers
from tests.integration.hk_vllm.linear_layers import config_of, load, merged
from tests.integration.shared.checkpoints import LAYERS, K
from tests.integration.shared.linear.rotated import only_hk, refused, written

pytestmark = pytest.mark.usefixtures("linear_route")


SHAPE = (64, 128)


def fp8(activations: Any = kFp8DynamicTokenSym, weight: Any = kFp8StaticChannelSym) -> Any:
    return lists.init_fp8_linear_kernel(activations, weight, torch.bfloat16, torch.bfloat16, SHAPE)


# -- refused, with the reason that vLLM shows


def why(kernel: Any, config: Any) -> str:
    ok, reason = kernel.can_implement(config)
    assert not ok
    return str(reason)


def static(rows: int, columns: int) -> Any:
    return create_fp8_quant_key(static=True, group_shape=GroupShape(rows, columns))


FP8, BLOCK = fp8_kernels.HKFp8LinearKernel, fp8_kernels.HKFp8BlockLinearKernel
WEIGHT_ONLY = fp8_kernels.HKWeightOnlyFp8LinearKernel
# one scale per token, fixed before there is a token
FIXED = create_fp8_quant_key(static=True, group_shape=GroupShape.PER_TOKEN)


@pytest.mark.parametrize(
    ("kernel", "activations", "weight", "reason"),
    [
        (FP8, kFp8Dynamic64Sym, kFp8StaticTensorSym, "activations quantised per .*row=1, col=64"),
        (FP8, FIXED, kFp8StaticChannelSym, "activations quantised per"),
        (FP8, kFp8DynamicTensorSym, kFp8Static128BlockSym, "weight scales per .*row=128, col=128"),
        (BLOCK, kFp8Dynamic64Sym, kFp8Static128BlockSym, "activations quantised per"),
        (BLOCK, kFp8Dynamic128Sym, static(64, 128), "weight scales per .*row=64, col=128"),
        (WEIGHT_ONLY, kFp8DynamicTensorSym, static(64, 64), "weight scales per"),
    ],
)
def test_fp8_that_is_refused(kernel: Any, activations: Any, weight: Any, reason: str) -> None:
    config = lists.FP8ScaledMMLinearLayerConfig(
        weight_quant_key=weight,
        activation_quant_key=activations,
        weight_shape=SHAPE,
        input_dtype=torch.bfloat16,
        out_dtype=torch.bfloat16,
    )
    assert re.search(reason, why(kernel, config))


def test_mx_that_is_refused() -> None:
    from vllm.model_executor.kernels.linear.mxfp6.base import MxFp6LinearLayerConfig

    other = "activations in another format than the weight's"
    config = lists.MxFp4LinearLayerConfig(activation_quant_key=kFp8StaticTensorSym)
    reason = why(mx_kernels.HKMxfp4LinearKernel, config)
    assert re.fullmatch("activations in .* with a weight in mxfp4", reason)
    mixed = MxFp6LinearLayerConfig(kMxfp6E2M3Static, kMxfp6E3M2Dynamic)
    assert why(mx_kernels.HKMxfp6LinearKernel, mixed).startswith(other)
    odd = MxFp6LinearLayerConfig(kFp8StaticTensorSym, None)
    assert why(mx_kernels.HKMxfp6LinearKernel, odd).startswith("a weight in")
    batch = lists.Mxfp8LinearLayerConfig(weight_shape=SHAPE, bmm_batch_size=4)
    assert why(mx_kernels.HKMxfp8LinearKernel, batch) == "a batch of matrices"
    # if vLLM has no kernel either, its error says why HK refused
    with pytest.raises(
        ValueError, match=r"HKMxfp4LinearKernel: activations in .* a weight in mxfp4"
    ):
        lists.init_mxfp4_linear_kernel(kFp8StaticTensorSym)


# -- rotated checkpoints: HK serves them, and nothing else


@pytest.mark.parametrize("format", ["mxfp4", "mxfp8"])
def test_a_rotated_layer_of_another_kernel(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotated layer is an error if vLLM goes on to its next kernel, or tries another first."""
    with monkeypatch.context() as patch:
        patch.setenv("VLLM_DISABLED_KERNELS", f"HK{format.capitalize()}LinearKernel")
        assert re.match(only_hk(""), refused(linear_layers, written(format=format)))
    able = classmethod(lambda cls, _: (True, None))
    members = {"is_supported": classmethod(lambda cls: (True, None)), "can_implement": able}
    base = {"mxfp4": MxFp4LinearKernel, "mxfp8": Mxfp8LinearKernel}[format]
    theirs: Any = type("TheirKernel", (base,), members)
    theirs.__abstractmethods__ = frozenset()
    of_format = getattr(lists, f"_POSSIBLE_{format.upper()}_KERNELS")
    monkeypatch.setitem(of_format, PlatformEnum.CPU, [theirs])
    why = "vLLM has chosen TheirKernel"
    assert re.match(only_hk(why), refused(linear_layers, written(format=format)))


# -- a layer whose weight latent attention (MLA) reads itself

KV_B_PROJ = "model.layers.0.self_attn.kv_b_proj"


def latent(config: Any, name: str = KV_B_PROJ) -> Any:
    return linear_layers.merged(config, torch.bfloat16, K, [256], prefix=name)


@pytest.mark.parametrize(
    ("name", "of_kind"),
    [("fp8-dynamic", "FP8"), ("fp8-block", "FP8_BLOCK"), ("ct-channel-token", "FP8")],
)
def test_latent_attention(name: str, of_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's kernel, if it has one, takes the layer, and keeps the weight and its scales."""
    for kernel in getattr(lists, f"_POSSIBLE_{of_kind}_KERNELS")[PlatformEnum.CPU]:
        if not issubclass(kernel, HKKernel):
            monkeypatch.setattr(kernel, "is_supported", lambda *_: (True, None))
            monkeypatch.setattr(kernel, "can_implement", lambda *_: (True, None))
    config = LAYERS[name].config
    assert model.why_left(latent(linear_layers.config_of(config))) == LATENT
    other = latent(linear_layers.config_of(config), "model.layers.0.self_attn.o_proj")
    assert model.why_left(other) != LATENT


def test_latent_attention_that_is_rotated() -> None:
    """vLLM multiplies the weight by the identity, which must stay exact in rotated mxfp4.

    A rotation by 32 takes it to numbers that mxfp4 lacks. A checkpoint may be rotated by 64, not by
    128.
    """
    of = linear_layers.method("hk_mxfp4").from_config_dict_json
    latent(of(json.dumps({"rotation": 64})))
    changed = f"{KV_B_PROJ}: .*{LATENT}, which a rotation by"
    with pytest.raises(ValueError, match=f"{changed} 32 would change"):
        latent(of(json.dumps({"rotation": 32})))
    latent(linear_layers.config_of(written()))
    with pytest.raises(RotationError, match=f"{changed} 128 would"):
        latent(linear_layers.config_of(written(rotation=128)))


# -- blocks that merged shards share: vLLM's `fp8` method takes them


def layer_of(widths: list[int]) -> Any:
    config = config_of(LAYERS["fp8-block"].config)
    return merged(config, torch.bfloat16, K, widths, prefix="model.gate_up_proj")


@pytest.mark.parametrize("widths", [[128, 96], [256, 8], [128, 128, 40]], ids=str)
def test_only_the_last_ends_within_a_block(widths: list[int]) -> None:
    generator = torch.Generator().manual_seed(1)
    weights = [
        (torch.randn(width, K, generator=generator) * 50).to(torch.float8_e4m3fn)
        for width in widths
    ]
    scales = [
        (1 + torch.rand(-(-width // 128), 2, generator=generator)) * 10.0**-index
        for index, width in enumerate(widths)
    ]
    layer = load(layer_of(widths), {"weight": weights, "weight_scale_inv": scales})
    assert is_attached(layer)
    x = torch.randn(5, K, generator=generator).bfloat16()
    for part, weight, scale in zip(layer(x).split(widths, -1), weights, scales, strict=True):
        truth = reference.linear(x, weight, "fp8_e4m3fn", scale, activations="token_block")
        assert largest_error(part, truth) <= tolerance(torch.bfloat16)


@pytest.mark.parametrize("widths", [[192, 128], [96, 96], [224, 224], [128, 64, 64]], ids=str)
def test_a_block_that_shards_share(widths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard other than the last ends within a block, and HK leaves the layer.

    vLLM has a kernel for such blocks on processors with AMX. On others it stops, as it would
    without HK, and its error says what to do.
    """
    why = (
        f"merged shards of {' and '.join(map(str, widths))} output features do not end on blocks of"
        " 128: quantise the model with a scale per output channel instead"
    )
    for has in (True, False):
        for kernel in (CPUFp8W8A8BlockScaledMMKernel, CPUFp8BlockScaledMMKernel):
            monkeypatch.setattr(kernel, "is_supported", lambda *_, has=has: (has, "no AMX"))
        if has:
            assert model.why_left(layer_of(widths)) == why
    with pytest.raises(ValueError, match=f"HKFp8BlockLinearKernel {why}"):
        layer_of(widths)


def test_a_shard_that_another_rank_continues() -> None:
    """vLLM counts whole blocks for each rank."""
    layer = SimpleNamespace(allow_fp8_block_shape_mismatch=True, output_partition_sizes=[128, 96])
    assert created.blocks_verdict_on(layer)
    layer.tp_size = 2
    assert not created.blocks_verdict_on(layer)
