"""The linear operators as torch sees them: registration, opcheck, torch.compile, fake tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hk_backend.ops import PackedWeight, linear, pack_weight, quantize_fp8, quantize_mx
from tests.ops.linear_cases import Case, Layer, make
from tests.ops.linear_oracle import check_result
from tests.ops.test_torch_library import Recorder

CASES = {
    "bf16": Case("bf16", m=7, bias=torch.bfloat16, out_dtype=None),
    "fp8": Case("fp8_e4m3fn", "token", "channel", m=7),
    "fp8 static": Case("fp8_e4m3fn", "tensor", "tensor", m=7, static=True),
    "fp8 block": Case("fp8_e4m3fnuz", "token_block", "block", m=7, n=130),
    "mxfp4": Case("mxfp4", "mx", m=20, x_dtype=torch.float16),
    "rotated": Case("mxfp4", "mx_rotated", m=7, k=192, rotation=64),
}


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_linear_passes_opcheck(case: Case) -> None:
    layer = make(case)
    weight = layer.pack()
    with Recorder() as recorder:
        linear(layer.x, weight, layer.bias, layer.out_dtype)
    ((operator, arguments),) = [call for call in recorder.calls if "hk_backend" in str(call[0])]
    assert operator is torch.ops.hk_backend.linear.default
    torch.library.opcheck(operator, arguments)


@pytest.mark.parametrize("granularity", ["token", "tensor", "token_block", "channel", "block"])
def test_quantize_fp8_passes_opcheck(granularity: str) -> None:
    """Without those that compare results: torch's allclose lacks FP8."""
    torch.library.opcheck(
        torch.ops.hk_backend.quantize_fp8.default,
        (torch.randn(5, 136), granularity, None, torch.float8_e4m3fn),
        test_utils=("test_autograd_registration", "test_faketensor"),
    )


@pytest.mark.parametrize("format", ["mxfp6_e2m3", "mxfp4"])
def test_quantize_mx_passes_opcheck(format: str) -> None:
    arguments = (torch.randn(3, 5, 96), format, "even", 32)
    torch.library.opcheck(torch.ops.hk_backend.quantize_mx.default, arguments)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_registered_operator_equals_the_public_function(case: Case) -> None:
    layer = make(case)
    weight = layer.pack()
    want = linear(layer.x, weight, layer.bias)
    with Recorder():
        assert torch.equal(linear(layer.x, weight, layer.bias), want)


def test_registered_quantisers_equal_the_public_functions() -> None:
    x = torch.randn(5, 160)
    for quantise in (quantize_fp8, lambda x: quantize_mx(x, "mxfp8", rotation=32)):
        want = quantise(x)
        with Recorder():
            found = quantise(x)
        for a, b in zip(found, want, strict=True):
            assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


class Module(torch.nn.Module):
    """A layer as an engine builds it: the parts of the weight as buffers, ints beside them."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        weight = layer.pack()
        for name, tensor in weight.tensors().items():
            self.register_buffer(name, tensor)
        self.ints = weight.as_ints()
        self.bias = layer.bias
        self.out_dtype = layer.out_dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = PackedWeight.from_parts(dict(self.named_buffers()), self.ints)
        return linear(x, weight, self.bias, self.out_dtype)


@pytest.mark.parametrize(
    ("name", "backend"), [*((name, "aot_eager") for name in CASES), ("fp8", "inductor")]
)
def test_compiles_without_graph_breaks(name: str, backend: str) -> None:
    layer = make(CASES[name])
    module = Module(layer)
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    out = compiled(layer.x)
    check_result(layer, out)
    assert torch.equal(out, module(layer.x))


def test_compiles_once_for_every_number_of_rows() -> None:
    compilations = []

    def count(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        compilations.append(graph)
        return graph.forward

    module = Module(make(CASES["fp8"]))
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=count)
    for rows in (2, 7, 20, 33):
        x = torch.randn(rows, 96).bfloat16()
        assert torch.equal(compiled(x), module(x))
    assert len(compilations) == 1
    assert "hk_backend.linear" in compilations[0].code


def test_compiled_quantisers() -> None:
    x = torch.randn(6, 160)

    def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*quantize_fp8(x * 2, "token_block"), *quantize_mx(x * 2, "mxfp4"))

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    for found, want in zip(compiled(x), both(x), strict=True):
        assert torch.equal(found.view(torch.uint8), want.view(torch.uint8))


def test_fake_tensors_have_the_right_shapes() -> None:
    weight = make(CASES["bf16"]).pack()
    mode = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        x = torch.empty(2, 3, 96, dtype=torch.bfloat16)
        out = linear(x, weight, out_dtype=torch.float32)
        codes, scales = quantize_fp8(x, "token_block")
        small, exponents = quantize_mx(x, "mxfp6_e3m2")
    assert (out.shape, out.dtype) == ((2, 3, 40), torch.float32)
    assert (codes.shape, codes.dtype) == ((2, 3, 96), torch.float8_e4m3fn)
    assert (scales.shape, scales.dtype) == ((2, 3, 1), torch.float32)
    assert (small.shape, small.dtype) == ((2, 3, 72), torch.uint8)
    assert (exponents.shape, exponents.dtype) == ((2, 3, 3), torch.uint8)


def test_a_trace_holds_the_operator() -> None:
    """A tracer that saw only a tensor made and filled behind its back would replay garbage."""
    weight = pack_weight(torch.randn(24, 64), "fp32")
    traced = torch.jit.trace(lambda x: linear(x, weight), torch.randn(3, 64), check_trace=False)
    x = torch.randn(3, 64)
    assert torch.equal(traced(x), linear(x, weight))
    assert "hk_backend::linear" in str(traced.graph)
