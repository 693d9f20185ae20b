"""The operators as torch sees them: registration, opcheck, torch.compile, autograd, modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hk_backend.ops import PackedWeight, attention_prefill, linear, pack_weight
from tests.ops.cases import Call, Case, make
from tests.ops.linear_cases import Case as Linear
from tests.ops.linear_cases import Layer
from tests.ops.linear_cases import make as make_layer
from tests.ops.linear_oracle import check_result as check_linear
from tests.ops.oracle import check_result, expected

CASES = {
    "packed": Case(lengths=((20, 20), (3, 3)), num_heads=4, num_kv_heads=2),
    "extend": Case(lengths=((5, 20), (3, 8)), alibi=True, sliding_window=6),
    "paged": Case(lengths=((5, 20), (3, 33)), layout="one [B,H,N,2D]", sinks=True),
    "numbers": Case(k_scale="number", v_scale="number", scale=0.25, causal=False),
    "fp8": Case(
        lengths=((5, 20),),
        dtype=torch.bfloat16,
        kv_dtype=torch.float8_e4m3fn,
        layout="CPU_ATTN: K [D,N], V [N,D], one storage",
        k_scale="per head",
        v_scale="one",
        logits_soft_cap=20.0,
    ),
}


class Recorder(TorchDispatchMode):
    """The operators that pass the dispatcher, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, args))
        return func(*args, **(kwargs or {}))


def registered(call: Callable[[], Any]) -> tuple[Any, tuple[Any, ...]]:
    """The operator and the arguments that a public function hands to it. The function goes past the
    dispatcher in eager mode: both ways must give the same bits."""
    want = call()
    with Recorder() as recorder:
        found = call()
    for both in zip(found, want, strict=True) if isinstance(want, tuple) else ((found, want),):
        assert torch.equal(*both)
    ((operator, arguments),) = [each for each in recorder.calls if "hk_backend" in str(each[0])]
    return operator, arguments


@pytest.mark.parametrize("return_lse", [True, False])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_attention_passes_opcheck(case: Case, return_lse: bool) -> None:
    call = make(case)
    operator, arguments = registered(lambda: attention_prefill(**call, return_lse=return_lse))
    assert operator is torch.ops.hk_backend.attention_prefill.default
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if case.kv_dtype is not None:
        checks.remove("test_schema")  # torch compares its copies by allclose, which lacks FP8
    torch.library.opcheck(operator, arguments, test_utils=(*checks, "test_aot_dispatch_dynamic"))


def test_merge_passes_opcheck() -> None:
    out, lse = torch.randn(3, 20, 2, 64), torch.randn(3, 2, 20)
    arguments = (out[0], lse[0], out[1], lse[1], out[2], lse[2])
    torch.library.opcheck(torch.ops.hk_backend.merge_attention.default, arguments)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def layer(call: Call) -> torch.Tensor:
    """Computes around attention as a model does: there is something to fuse and to reorder."""
    out = attention_prefill(**call | {"query": call["query"] * 2})
    assert isinstance(out, torch.Tensor)
    return out.float() * 3 + call["query"].float()


@pytest.mark.parametrize("name", ["packed", "paged", "fp8"])
def test_compiles_without_graph_breaks(name: str, fresh_compiler: None) -> None:
    call = make(CASES[name])
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(call), layer(call))


@pytest.mark.parametrize("operator", ["attention_prefill", "linear"])
def test_compiles_once_for_every_length(operator: str, fresh_compiler: None) -> None:
    compilations = []
    compute: Any = layer if operator == "attention_prefill" else Module(make_layer(LAYERS["fp8"]))

    def count(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        compilations.append(graph)
        return graph.forward

    compiled = torch.compile(compute, fullgraph=True, dynamic=True, backend=count)
    for tokens in (7, 20, 33, 100):
        call: Any = make(Case(lengths=((tokens, tokens), (2, 2)), num_heads=4, num_kv_heads=2))
        if operator == "linear":
            call = torch.randn(tokens, 96).bfloat16()
        torch.testing.assert_close(compiled(call), compute(call))
    assert len(compilations) == 1
    assert f"hk_backend.{operator}" in compilations[0].code


def test_compiled_writes_into_the_given_output(fresh_compiler: None) -> None:
    """Functionalisation must keep the rows past the batch, and write nowhere else."""
    call = make(Case(lengths=((9, 9),), after=4))
    buffer = torch.full((13, 3, 64), 5.0)

    def write(call: Call, buffer: torch.Tensor) -> torch.Tensor:
        attention_prefill(**call, out=buffer[:, :2])
        return buffer + 1

    result = torch.compile(write, fullgraph=True)(call, buffer)
    check_result(
        expected(call), buffer[:, :2], expected(call).lse.float(), torch.full((13, 2, 64), 5.0)
    )
    assert (buffer[:, 2] == 5).all()
    assert torch.equal(result, buffer + 1)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_parameters_are_fine_where_no_gradient_is_recorded(mode: Any) -> None:
    """An engine's sinks are a parameter of the model, which is run without gradients."""
    call = make(Case(lengths=((5, 5),), sinks=True))
    want = attention_prefill(**call)
    assert isinstance(want, torch.Tensor)
    for name in ("query", "key", "value", "sinks"):
        call[name].requires_grad_()
    with mode():
        out = attention_prefill(**call)
    assert isinstance(out, torch.Tensor)
    assert torch.equal(out, want)
    assert not out.requires_grad


def test_subclasses_reach_the_registered_operator() -> None:
    """A tensor subclass sees the call: the way past the dispatcher is for plain tensors only."""
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, *arguments: Any) -> Any:
            seen.append(str(func))
            return super().__torch_function__(func, types, *arguments)

    call = make(Case(lengths=((5, 5),)))
    want = attention_prefill(**call)
    out = attention_prefill(**call | {"query": call["query"].as_subclass(Watched)})
    assert any("hk_backend" in name for name in seen)
    assert torch.equal(torch.Tensor(out), want)  # type: ignore[arg-type]


LAYERS = {
    "bf16": Linear("bf16", m=7, bias=torch.bfloat16, out_dtype=None),
    "fp8": Linear("fp8_e4m3fn", "token", "channel", m=7),
    "fp8 static": Linear("fp8_e4m3fn", "tensor", "tensor", m=7, static=True),
    "fp8 block": Linear("fp8_e4m3fnuz", "token_block", "block", m=7, n=130),
    "mxfp4": Linear("mxfp4", "mx", m=20, x_dtype=torch.float16),
    "rotated": Linear("mxfp4", "mx_rotated", m=7, k=192, rotation=64),
}


@pytest.mark.parametrize("case", LAYERS.values(), ids=LAYERS)
def test_linear_passes_opcheck(case: Linear) -> None:
    layer = make_layer(case)
    weight = layer.pack()
    operator, arguments = registered(lambda: linear(layer.x, weight, layer.bias, layer.out_dtype))
    assert operator is torch.ops.hk_backend.linear.default
    torch.library.opcheck(operator, arguments)


@pytest.mark.parametrize("granularity", ["token", "tensor", "token_block", "channel", "block"])
def test_quantize_fp8_passes_opcheck(granularity: str) -> None:
    """Checks that compare results are left out: torch's allclose lacks FP8."""
    torch.library.opcheck(
        torch.ops.hk_backend.quantize_fp8.default,
        (torch.randn(5, 136), granularity, None, torch.float8_e4m3fn),
        test_utils=("test_autograd_registration", "test_faketensor"),
    )


@pytest.mark.parametrize("format", ["mxfp6_e2m3", "mxfp4"])
def test_quantize_mx_passes_opcheck(format: str) -> None:
    arguments = (torch.randn(3, 5, 96), format, "even", 32)
    torch.library.opcheck(torch.ops.hk_backend.quantize_mx.default, arguments)


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


@pytest.mark.parametrize(("name", "backend"), [("fp8", "inductor"), ("rotated", "aot_eager")])
def test_layers_compile_without_graph_breaks(name: str, backend: str, fresh_compiler: None) -> None:
    layer = make_layer(LAYERS[name])
    module = Module(layer)
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    out = compiled(layer.x)
    check_linear(layer, out)
    assert torch.equal(out, module(layer.x))


def test_a_trace_holds_the_operator() -> None:
    """A tracer that saw only a tensor made and filled behind its back would replay garbage."""
    weight = pack_weight(torch.randn(24, 64), "fp32")
    traced = torch.jit.trace(lambda x: linear(x, weight), torch.randn(3, 64), check_trace=False)
    x = torch.randn(3, 64)
    assert torch.equal(traced(x), linear(x, weight))
    assert "hk_backend::linear" in str(traced.graph)
