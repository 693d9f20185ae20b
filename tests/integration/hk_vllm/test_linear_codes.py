"""Activations that vLLM itself rounds to FP8: a model hands them over, or a compiled graph does.

The last tests hold that vLLM rounds as the reference does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from vllm.model_executor.layers.fusion.quant_activation import (
    QuantizedActivation,
)
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    GroupShape,
    kFp8Dynamic128Sym,
    kFp8DynamicTensorSym,
    kFp8DynamicTokenSym,
    kFp8StaticTensorSym,
)
from vllm.model_executor.models.llama import LlamaMLP
from vllm.model_executor.utils import weights_already_processed
from vllm.utils.torch_utils import set_default_torch_dtype

from hk_backend.reference import dequantize_rows, quantize_fp8
from hk_backend.terms.weight_format import FLOAT_DTYPES
from tests.integration.hk_vllm import linear_layers
from tests.integration.hk_vllm.linear_layers import config_of, load, merged
from tests.integration.shared.checkpoints import LAYERS, WIDTHS, K, x_of
from tests.integration.shared.e2e.inside import launches
from tests.integration.shared.linear.devices import GFX950, in_schemes, on_devices
from tests.integration.shared.linear.layers import check_shards, layer_of, values
from tests.ops.linear_cases import Layer
from tests.ops.linear_oracle import check_result
from tests.ops.test_quantize import hard_rows, reciprocal_ties

pytestmark = pytest.mark.usefixtures("linear_route")

BF16 = torch.bfloat16
FP8 = torch.float8_e4m3fn
TAKEN = {
    "fp8-static": (kFp8StaticTensorSym, "tensor"),
    "fp8-dynamic": (kFp8DynamicTensorSym, "tensor"),
    "fp8-block": (kFp8Dynamic128Sym, "token_block"),
    "ct-channel-token": (kFp8DynamicTokenSym, "token"),
    "quark-channel-token": (kFp8DynamicTokenSym, "token"),
    "modelopt-fp8": (kFp8StaticTensorSym, "tensor"),
}
"""Checkpoints, with the codes that a layer takes, and what shares a scale of them."""


@pytest.fixture
def made() -> Iterator[list[torch.Tensor]]:
    """Define vLLM's compiled `silu_and_mul_quant` in torch; return the codes that it has made.

    Only vLLM's GPU builds have the compiled function.
    """
    found: list[torch.Tensor] = []

    def silu_and_mul_quant(result: torch.Tensor, input: torch.Tensor, scale: torch.Tensor) -> None:
        gate, up = input.float().chunk(2, -1)
        rounded = (torch.nn.functional.silu(gate) * up / scale).clamp(-448, 448)
        found.append(result.copy_(rounded.to(FP8)))

    library = torch.library.Library("_C", "FRAGMENT")
    library.define("silu_and_mul_quant(Tensor! result, Tensor input, Tensor scale) -> ()")
    library.impl("silu_and_mul_quant", silu_and_mul_quant, "CPU")
    yield found
    library._destroy()


# -- handed over by a model


@in_schemes(LAYERS, TAKEN)
def test_codes_are_taken_as_they_are(device: str, name: str) -> None:
    """HK uses the scales of the codes that it is handed: here three times its own."""
    checkpoint, (key, granularity) = LAYERS[name], TAKEN[name]
    layer = layer_of(linear_layers, checkpoint)
    rows, scales = quantize_fp8(x_of(), granularity)
    shape = torch.Size((3, 3, K))
    scales = scales if scales.numel() == 1 else scales.view(3, 3, -1)
    given = QuantizedActivation(rows.view(shape), 3 * scales, BF16, shape, key)
    out = layer(given)
    assert (out.shape, out.dtype) == ((3, 3, sum(WIDTHS)), BF16)
    check_shards(checkpoint.of_codes(given.data, given.scale, BF16), out.view(9, -1))


def mlp() -> Any:
    """vLLM's own MLP, from a checkpoint with static scales."""
    scheme = LAYERS["fp8-static"]
    config = config_of(scheme.config)
    config.packed_modules_mapping = {"gate_up_proj": ["gate_proj", "up_proj"]}
    with set_default_torch_dtype(BF16):
        whole = LlamaMLP(K, 128, "silu", quant_config=config, prefix="model.layers.0.mlp")
    load(whole.gate_up_proj, {name: values[1:] for name, values in scheme.tensors().items()})
    down = whole.down_proj
    for parameter, value in DOWN.items():
        held = getattr(down, parameter)
        held.weight_loader(held, value)
    down.quant_method.process_weights_after_loading(down)
    return whole


DOWN = LAYERS["fp8-static"].layer(values((K, 128), torch.float32)).tensors | {
    "input_scale": torch.tensor(0.5)
}


@on_devices
def test_an_activation_function_and_its_rounding_stay_fused(
    device: str, made: list[torch.Tensor]
) -> None:
    """The second layer of vLLM's own MLP gets the codes that vLLM's fused kernel has made."""
    whole = mlp()
    before = rounded_by_hk()
    out = whole(x_of())
    [found] = made
    x, scale = dequantize_rows(found, DOWN["input_scale"]), DOWN["weight_scale"].reshape(1)
    check_result(Layer(x, DOWN["weight"], "fp8_e4m3fn", scale, out_dtype=BF16), out)
    assert rounded_by_hk() - before == (device == GFX950), "the input of the first layer alone"


def rounded_by_hk() -> int:
    """Number of launches of HK's own quantisers."""
    return sum(count for name, count in launches().items() if name.startswith("quantize_fp8"))


# -- rounded in a compiled graph


class Seen:
    """A backend of torch.compile that runs graphs as they are; `inputs`: the dtypes of HK's x."""

    def __init__(self) -> None:
        self.inputs: list[torch.dtype] = []

    def __call__(self, graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Any:
        for node in graph.graph.nodes:
            if node.target is torch.ops.hk_backend.routed_linear:
                self.inputs.append(node.args[0].meta["example_value"].dtype)
        return graph.forward


def in_a_graph(layer: Any, **options: Any) -> tuple[Any, Seen]:
    torch._dynamo.reset()
    seen = Seen()
    compute = layer.quant_method.apply
    return torch.compile(compute, backend=seen, fullgraph=True, **options), seen


@in_schemes(LAYERS, TAKEN)
def test_in_a_graph_vllm_rounds(device: str, name: str) -> None:
    """vLLM rounds on a GPU, and can fuse that; its numbers are HK's, bit for bit."""
    layer, x = layer_of(linear_layers, LAYERS[name]), x_of().view(3, 3, K)
    compiled, seen = in_a_graph(layer)
    out = compiled(layer, x)
    assert seen.inputs == [FP8 if device == GFX950 else BF16]
    assert torch.equal(out, layer.quant_method.apply(layer, x))


def test_weights_that_are_processed_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """HK must not read the processed tensors of vLLM's weight cache as a checkpoint's."""
    checkpoint = LAYERS["fp8-dynamic"]
    layer = merged(config_of(checkpoint.config), torch.bfloat16, K, WIDTHS)
    read: list[Any] = []
    kernel = layer.quant_method.fp8_linear
    monkeypatch.setattr(kernel, "process_checkpoint", read.append)
    with weights_already_processed():
        load(layer, checkpoint.tensors())
    assert not read
    load(layer, checkpoint.tensors())
    assert read == [layer]


# -- the reference of the quantisers gives what vLLM computes in torch

GROUPS = {
    "token": GroupShape.PER_TOKEN,
    "tensor": GroupShape.PER_TENSOR,
    "token_block": GroupShape(1, 128),
}


def same(found: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether numbers are equal, signs of zero included; any NaN equals any other."""
    found, want = found.float(), want.float().reshape(found.shape)
    equal = (found == want) & (found.signbit() == want.signbit())
    return bool((equal | (found.isnan() & want.isnan())).all())


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("granularity", GROUPS)
def test_the_reference_rounds_as_vllm(granularity: str, dtype: torch.dtype) -> None:
    """The reference rounds as vLLM does, by scales that it finds, and by a tensor's given one."""
    found = QuantFP8(static=False, group_shape=GROUPS[granularity])
    given = QuantFP8(static=True, group_shape=GroupShape.PER_TENSOR)
    rows, ties = hard_rows(dtype), [reciprocal_ties(float(a)) for a in range(3, 256, 2)]
    for x in (rows, rows[rows.isfinite().all(1)], torch.stack(ties).to(dtype)):
        codes, scales = quantize_fp8(x, granularity)
        want_codes, want_scales = found.forward_native(x)
        assert same(scales, want_scales)
        assert same(codes, want_codes)
        for scale in (torch.tensor([0.0371]), torch.tensor([3.0])):
            codes, _ = quantize_fp8(x, "tensor", scale)
            assert same(codes, given.forward_native(x, scale)[0])
