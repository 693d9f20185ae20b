"""The operators as torch sees them: registration, opcheck, torch.compile, autograd, modes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hk_backend.ops import attention_prefill, merge_attention
from tests.ops.cases import Call, Case, int32, make
from tests.ops.oracle import check_result, expected

CASES = {
    "packed": Case(lengths=((20, 20), (3, 3)), num_heads=4, num_kv_heads=2),
    "extend": Case(lengths=((5, 20), (3, 8)), alibi=True, sliding_window=6),
    "paged": Case(lengths=((5, 20), (3, 33)), layout="one [B,H,N,2D]", sinks=True),
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


def registered_call(call: Call, return_lse: bool) -> tuple[Any, tuple[Any, ...]]:
    """The registered operator and the arguments that a public call hands to it."""
    with Recorder() as recorder:
        attention_prefill(**call, return_lse=return_lse)
    found = [item for item in recorder.calls if "hk_backend" in str(item[0])]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("return_lse", [True, False])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_attention_passes_opcheck(case: Case, return_lse: bool) -> None:
    operator, arguments = registered_call(make(case), return_lse)
    assert operator is torch.ops.hk_backend.attention_prefill.default
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if case.kv_dtype is not None:
        checks.remove("test_schema")  # torch compares its copies by allclose, which lacks FP8
    torch.library.opcheck(operator, arguments, test_utils=(*checks, "test_aot_dispatch_dynamic"))


def test_merge_passes_opcheck() -> None:
    out, lse = torch.randn(3, 20, 2, 64), torch.randn(3, 2, 20)
    arguments = (out[0], lse[0], out[1], lse[1], out[2], lse[2])
    torch.library.opcheck(torch.ops.hk_backend.merge_attention.default, arguments)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_registered_operator_equals_the_public_function(case: Case) -> None:
    """In eager mode the function goes past the dispatcher: both ways must give the same bits."""
    call = make(case)
    out, lse = attention_prefill(**call, return_lse=True)
    with Recorder():
        same_out, same_lse = attention_prefill(**call, return_lse=True)
    assert torch.equal(out, same_out)
    assert torch.equal(lse, same_lse)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def layer(call: Call) -> torch.Tensor:
    """What a model does around attention, so that there is something to fuse and to reorder."""
    out = attention_prefill(**call | {"query": call["query"] * 2})
    assert isinstance(out, torch.Tensor)
    return out.float() * 3 + call["query"].float()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_compiles_without_graph_breaks(case: Case, backend: str, fresh_compiler: None) -> None:
    call = make(case)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(call), layer(call))


def test_compiled_result_is_within_the_bounds(fresh_compiler: None) -> None:
    call = make(CASES["packed"])

    def attend(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
        return attention_prefill(**call, return_lse=True)  # type: ignore[return-value]

    out, lse = torch.compile(attend, fullgraph=True)(call)
    check_result(expected(call), out, lse, out)


def test_compiles_once_for_every_length(fresh_compiler: None) -> None:
    compilations = []

    def count(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        compilations.append(graph)
        return graph.forward

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=count)
    for tokens in (7, 20, 33, 100):
        call = make(Case(lengths=((tokens, tokens), (2, 2)), num_heads=4, num_kv_heads=2))
        torch.testing.assert_close(compiled(call), layer(call))
    assert len(compilations) == 1
    assert "attention_prefill" in compilations[0].code


def test_compiled_writes_into_the_given_output(fresh_compiler: None) -> None:
    """Functionalisation must keep the rows past the batch, and write nowhere else."""
    call = make(Case(lengths=((9, 9),), after=4))
    buffer = torch.full((13, 3, 64), 5.0)

    def write(call: Call, buffer: torch.Tensor) -> torch.Tensor:
        attention_prefill(**call, out=buffer[:, :2])
        return buffer + 1

    result = torch.compile(write, fullgraph=True)(call, buffer)
    check_result(
        expected(call),
        buffer[:, :2],
        expected(call).lse.float(),
        torch.full((13, 2, 64), 5.0),
    )
    assert (buffer[:, 2] == 5).all()
    assert torch.equal(result, buffer + 1)


def test_compiled_merge(fresh_compiler: None) -> None:
    out, lse = torch.randn(2, 20, 2, 64), torch.randn(2, 2, 20)

    def merge(out: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return merge_attention(out[0], lse[0], out[1], lse[1])

    compiled = torch.compile(merge, fullgraph=True)
    torch.testing.assert_close(compiled(out, lse), merge(out, lse))


def test_fake_tensors_have_the_right_shapes() -> None:
    with torch._subclasses.FakeTensorMode():
        query, key = torch.empty(20, 4, 64), torch.empty(20, 2, 64)
        starts = torch.empty(3, dtype=torch.int32)
        out, lse = attention_prefill(query, key, key, query_start_loc=starts, return_lse=True)
        merged, total = merge_attention(out, lse, out, lse)
    assert out.shape == merged.shape == (20, 4, 64)
    assert lse.shape == total.shape == (4, 20)
    assert lse.dtype == total.dtype == torch.float32


@pytest.mark.parametrize("name", ["query", "key", "value", "sinks"])
def test_a_tensor_that_requires_grad_is_refused(name: str) -> None:
    """There is no backward: better an error than a gradient that is silently missing."""
    call = make(Case(lengths=((5, 5),), sinks=True))
    call[name].requires_grad_()
    with pytest.raises(ValueError, match=rf"^{name}: .*grad.*expected"):
        attention_prefill(**call)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_parameters_are_fine_where_no_gradient_is_recorded(mode: Any) -> None:
    """As in an engine: sinks are a parameter of the model, which is run without gradients."""
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


def test_empty_batches_pass_the_dispatcher() -> None:
    query, key = torch.empty(0, 4, 64), torch.empty(0, 2, 64)
    with Recorder():
        out = attention_prefill(query, key, key, query_start_loc=int32([0]))
    assert isinstance(out, torch.Tensor)
    assert out.shape == (0, 4, 64)
