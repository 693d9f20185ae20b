"""Linear layers that are measured beside SGLang's own way, which is as it was before HK."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang import ranks
from hk_sglang.linear.stock import _loader_for
from sglang.srt.layers.quantization.fp8 import Fp8LinearMethod
from sglang.srt.layers.quantization.unquant import F
from sglang.srt.managers.scheduler import Scheduler

from hk_backend import reference
from hk_backend.engine.evidence import ALONE
from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.shared.checkpoints import Scheme, x_of
from tests.integration.shared.evidence import Bench
from tests.integration.shared.linear.layers import (
    KIND,
    assert_computes,
    layer_of,
    left,
    loaded,
    weights,
)

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


def test_a_failing_kernel_of_sglangs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layer is SGLang's, with the reason, whatever becomes of it there."""
    with monkeypatch.context() as patch:
        patch.setattr(F, "linear", lambda *_: 1 / 0)
        layer = loaded(linear_layers)
    why = f"{KIND}: not measured: ZeroDivisionError: division by zero"
    assert left(linear_layers, layer) == why
    assert_computes(layer, torch.cat(weights()))


def test_requests_run_when_the_scheduler_begins(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says what was measured until then."""
    loaded(linear_layers)
    with caplog.at_level("INFO"), pytest.raises(AttributeError):  # it has nothing else
        Scheduler.run_event_loop(SimpleNamespace(device="cuda"))
    [line] = [each for each in caplog.messages if "measured 1 kind of linear layers" in each]
    assert "1 by HK, 0 by SGLang" in line
    other = loaded(linear_layers, torch.float16)
    assert left(linear_layers, other).endswith("requests run already")
    assert len(bench.rows) == 1


@pytest.fixture
def fp8_by_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's method for FP8 computes on this CPU, in plain torch."""

    def apply(method: Any, layer: Any, x: torch.Tensor, bias: Any = None) -> torch.Tensor:
        scales = layer.weight_scale.repeat_interleave(torch.tensor(layer.logical_widths))
        out = reference.linear(x, layer.weight, "fp8_e4m3fn", scales[:, None], activations="tensor")
        return out.to(x.dtype)

    process = "process_weights_after_loading"
    monkeypatch.setattr(Fp8LinearMethod, process, lambda method, layer: None)
    monkeypatch.setattr(Fp8LinearMethod, "apply", apply)


@pytest.mark.parametrize("by_hk", [True, False])
def test_the_faster_one_gets_a_quantised_layer(
    bench: Bench, fp8_by_sglang: None, by_hk: bool
) -> None:
    """Before a tensor is loaded, from the same random codes and scales: these load into what the
    method of the faster one has made."""
    if not by_hk:
        bench.let_the_engine_win()
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    layer = layer_of(linear_layers, checkpoint)
    assert is_attached(layer) is by_hk
    assert bench.rows[0][:4] == (1, 8, 64, 512)
    for ours, theirs in bench.outputs.values():
        assert ours.any()
        assert largest_error(ours, theirs.double()) <= tolerance(torch.bfloat16)
        assert largest_error(ours * 1.02, theirs.double()) > tolerance(torch.bfloat16)
    if not by_hk:
        assert type(layer.quant_method).__name__ == "Fp8LinearMethod"
        kind = "fp8_e4m3fn 512x256 from bfloat16, activations tensor, scales tensor"
        why = f"faster without HK: linear {kind}: 1 row: HK 2 us, the engine 1 us"
        assert left(linear_layers, layer) == why
    x = x_of()
    expected = checkpoint.expected(x, checkpoint.tensors())
    out = layer.quant_method.apply(layer, x)
    assert largest_error(out, expected) <= tolerance(torch.bfloat16)


def test_a_quantised_layer_that_only_hk_computes(bench: Bench, any_checkpoint: Scheme) -> None:
    """The layer is HK's, unmeasured: no method of SGLang's for it runs on this CPU."""
    bench.let_the_engine_win()
    assert is_attached(layer_of(linear_layers, any_checkpoint))
    assert not bench.rows


@pytest.mark.parametrize(("size", "alone"), [(1, True), (2, False)])
def test_a_group_of_one_rank_is_alone(
    size: int, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parallel = SimpleNamespace(tp_group=SimpleNamespace(world_size=size))
    monkeypatch.setattr(ranks, "get_parallel", lambda: parallel)
    assert (ranks.tensor_parallel() is ALONE) == alone


@pytest.mark.parametrize(
    ("scheme", "loader"),
    [
        (None, "weight_loader"),
        (SimpleNamespace(requires_weight_loader_v2=False), "weight_loader"),
        (SimpleNamespace(requires_weight_loader_v2=True), "weight_loader_v2"),
    ],
)
def test_a_stand_in_has_the_loader_that_sglang_would_choose(scheme: Any, loader: str) -> None:
    layer = SimpleNamespace(weight_loader="weight_loader", weight_loader_v2="weight_loader_v2")
    layer.scheme = scheme
    assert _loader_for(SimpleNamespace(), layer) == loader
