"""A layer's calls: counted, checked against the reference, and right even after a failed check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hk_backend import reference
from hk_backend.devices.cpu.device import CpuDevice
from hk_backend.engine.linear import original, route
from hk_backend.engine.linear.original import Original
from hk_backend.engine.linear.route import (
    RoutedLinearError,
    apply,
    attach,
    is_attached,
    move,
)
from hk_backend.ops import PackedWeight, pack_weight, quantize_fp8, quantize_mx
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import largest_error, tolerance
from hk_backend.terms.weight_format import ROTATED
from tests.engine.conftest import forget

N, K = 200, 64


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that makes HK_CHECK compare every call, and sets further variables."""

    def set_variables(**more: str) -> None:
        for name, value in {"HK_CHECK": "1", **more}.items():
            monkeypatch.setenv(name, value)
        forget()

    return set_variables


def layer_of(weight: torch.Tensor, claimed: torch.Tensor | None = None) -> torch.nn.Module:
    """A layer with `weight`; the reference is told that the weight is `claimed`."""
    layer = torch.nn.Module()
    told = weight if claimed is None else claimed
    attach(layer, pack_weight(weight, "bf16"), Original("a.b", told, "bf16", None, "none", None))
    return layer


def weight_of(scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(N, K, generator=generator) * scale).bfloat16()


X = torch.randn(3, 2, K, generator=torch.Generator().manual_seed(1)).bfloat16()


def test_a_weight_with_other_scales_is_refused_whole() -> None:
    """A reattached weight is copied over the one that compiled graphs hold, so it must fit as a
    whole."""
    weight = torch.randn(256, 256, generator=torch.Generator().manual_seed(2))
    blocks, channels = (
        (codes, pack_weight(codes, "fp8_e4m3fn", scales), scales)
        for codes, scales in (quantize_fp8(weight, kind) for kind in ("block", "channel"))
    )
    for first, second in ((blocks, channels), (channels, blocks)):
        layer = torch.nn.Module()
        attach_fp8(layer, first)
        before = {name: each.clone() for name, each in layer.named_buffers()}
        with pytest.raises(
            ValueError, match=r"^packed: \[256, 256\] in .* is not valid: expected "
        ):
            attach_fp8(layer, second)
        assert dict(layer.named_buffers()).keys() == before.keys()
        assert all(torch.equal(each, before[name]) for name, each in layer.named_buffers())


def attach_fp8(
    layer: torch.nn.Module, made: tuple[torch.Tensor, PackedWeight, torch.Tensor]
) -> None:
    codes, packed, scales = made
    attach(layer, packed, Original("a.b", codes, "fp8_e4m3fn", scales, "none", None))


def test_calls_and_tokens_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = layer_of(weight_of())
    apply(layer, X)
    apply(layer, X[0])
    apply(layer, X[:0])
    monkeypatch.setattr(route, "_dummy_runs", [])
    route.tell_dummy_runs(lambda: True)
    apply(layer, X)
    counters = routes.counters("linear")
    assert (counters.served.calls, counters.served.tokens) == (3, 8)
    assert (counters.dummy.calls, counters.dummy.tokens) == (1, 6)


def test_captured_calls_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured calls are counted apart also in a run with metadata. Full graphs are captured in
    such runs, and no engine calls them dummy runs."""
    layer = layer_of(weight_of())
    for is_dummy in (False, True):
        monkeypatch.setattr(route, "_dummy_runs", [lambda is_dummy=is_dummy: is_dummy])
        with monkeypatch.context() as patch:
            patch.setattr(CpuDevice, "is_capturing", lambda _: True)
            apply(layer, X)
    counters = routes.counters("linear")
    assert (counters.captured.calls, counters.captured.tokens) == (2, 12)
    assert counters.served.calls == counters.dummy.calls == 0


def test_calls_are_counted_under_torch_compile() -> None:
    """Python is traced once, so the counting is inside the operator."""
    layer = layer_of(weight_of())
    compiled = torch.compile(lambda x: apply(layer, x) * 2, backend="eager", fullgraph=True)
    for _ in range(3):
        out = compiled(X)
    assert torch.equal(out, apply(layer, X) * 2)
    assert routes.counters("linear").served.calls == 4


def test_the_operator_keeps_its_promises() -> None:
    layer: Any = layer_of(weight_of())
    arguments = (X, layer.hk_data, None, None, None, layer.hk_weight, None, X.dtype, None, "linear")
    torch.library.opcheck(torch.ops.hk_backend.routed_linear.default, arguments)


# -- HK_CHECK


def test_codes_are_compared_as_they_came(checked: Callable[..., None]) -> None:
    """Codes are compared with the scales that came with them, even if these do not fit the rows."""
    checked(HK_STRICT="1")
    weight, scales = quantize_fp8(weight_of(), "channel")
    layer = torch.nn.Module()
    original = Original("a.b", weight, "fp8_e4m3fn", scales, "token", None)
    attach(layer, pack_weight(weight, "fp8_e4m3fn", scales, activations="token"), original)
    codes, rows = quantize_fp8(X)
    apply(layer, codes, None, torch.bfloat16, 3 * rows)
    assert routes.counters("linear").checked_calls == 1
    assert routes.counters("linear").served.tokens == 6
    attach(layer, pack_weight(weight, "fp8_e4m3fn", 1.02 * scales, activations="token"), original)
    with pytest.raises(RoutedLinearError, match="exceeds the tolerance"):
        apply(layer, codes, None, torch.bfloat16, 3 * rows)


@pytest.mark.parametrize("activations", ROTATED)
def test_a_rotation_is_compared_as_the_layer_has_it(
    activations: str, checked: Callable[..., None]
) -> None:
    checked(HK_STRICT="1")
    layer = torch.nn.Module()
    codes, scales = quantize_mx(weight_of(), "mxfp4")
    packed = pack_weight(codes, "mxfp4", scales, activations=activations, rotation=64)
    original = Original("a.b", codes, "mxfp4", scales, activations, None, rotation=64)
    attach(layer, packed, original)
    apply(layer, X)
    assert routes.counters("linear").checked_calls == 1
    other = pack_weight(codes, "mxfp4", scales, activations=activations, rotation=32)
    with pytest.raises(ValueError, match=r"^packed: .* is not valid: expected"):
        attach(layer, other, original)
    layer = torch.nn.Module()
    attach(layer, other, original)
    with pytest.raises(RoutedLinearError, match="exceeds the tolerance"):
        apply(layer, X)


def test_a_capture_is_not_compared(
    checked: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked()
    wrong = layer_of(weight_of(), claimed=weight_of(2.0))
    with monkeypatch.context() as patch:
        patch.setattr(CpuDevice, "is_capturing", lambda _: True)
        apply(wrong, X)
    counters = routes.counters("linear")
    assert (counters.unchecked_calls, counters.checked_calls) == (1, 0)
    assert not routes.is_disabled("linear")
    apply(wrong, X)
    assert routes.is_disabled("linear")


def test_a_wrong_answer_is_corrected_and_ends_the_route(checked: Callable[..., None]) -> None:
    """A layer's output is 2% too large: the reference computes this call and all later ones."""
    checked()
    truth = weight_of(0.5)
    wrong = layer_of((truth.float() * 1.02).bfloat16(), claimed=truth)
    right = reference.linear(X, truth, "bf16").bfloat16()
    assert torch.equal(apply(wrong, X), right)
    assert routes.is_disabled("linear")
    why = routes.verdict("linear").why
    assert "HK_CHECK: error 2.0" in why or "HK_CHECK: error 1.9" in why
    assert "at a.b, 6 rows" in why
    assert torch.equal(apply(wrong, X), right)
    counters = routes.counters("linear")
    assert counters.served.calls == 1
    assert counters.fallbacks[why].tokens == 6


def test_a_weight_that_another_layer_gets(checked: Callable[..., None]) -> None:
    """A weight's memory stays, and HK_CHECK finds the original in it. The first layer may get
    another weight."""
    checked(HK_STRICT="1")
    first, second = layer_of(weight_of()), layer_of(weight_of(3.0))
    held = first.hk_data
    move(first, second)
    assert second.hk_data is held is first.hk_data
    assert (is_attached(first), is_attached(second)) == (False, True)
    right = reference.linear(X, weight_of(), "bf16")
    assert largest_error(apply(second, X), right) <= tolerance(torch.bfloat16)
    other = weight_of(2.0)
    attach(first, pack_weight(other, "bf16"), Original("a.b", other, "bf16", None, "none", None))
    for layer in (first, second):
        apply(layer, X)
    assert first.hk_data is not held
    assert routes.counters("linear").checked_calls == 3


@pytest.mark.parametrize("kind", ["tensor", "channel", "block", "mx"])
def test_the_reference_in_pieces(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference computes a few output features at a time, each with its own scales."""
    monkeypatch.setattr(original, "REFERENCE_ROWS", 128)
    if kind == "mx":
        codes, scales = quantize_mx(weight_of(), "mxfp4")
        origin = Original("a", codes, "mxfp4", scales, "mx", None)
    else:
        shape = {"tensor": (1,), "channel": (N, 1), "block": (2, 1)}[kind]
        scales = torch.linspace(0.5, 2, shape[0]).reshape(shape)
        codes = weight_of().to(torch.float8_e4m3fn)
        origin = Original("a", codes, "fp8_e4m3fn", scales, "token", None)
    bias = torch.arange(N).float()
    found = origin.multiply(X, bias, torch.float64)
    expected = reference.linear(
        X, codes, origin.format, scales, activations=origin.activations, bias=bias
    )
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
