"""What a server does that HK does not understand, or HK lacks: its backends are SGLang's own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hk_sglang.attention.server import refuse_server
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.model_executor.cuda_graph_config import Backend, CudaGraphConfig, PhaseConfig

from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, routes
from tests.integration.hk_sglang.attention.batch import MIXED, Batch, Server


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"attn_cp_size": 2, "tp_size": 2}, "context parallelism"),
        ({"dcp_size": 2, "tp_size": 2}, "decode context parallelism"),
        ({"enable_two_batch_overlap": True}, "two-batch overlap"),
        ({"enable_pdmux": True}, "prefill and decode multiplexed on one device"),
        (
            {"enable_deterministic_inference": True},
            "--enable-deterministic-inference: not proven for HK",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_configurations(
    counters: RouteCounters, published: Callable[..., None], fields: dict[str, Any], why: str
) -> None:
    published(**fields)
    assert refusal() == why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"is_draft_worker": True}, "a draft model"),
        ({"use_mla_backend": True}, "latent attention"),
        ({"kv_index_translator": SimpleNamespace(is_translating=True)}, "a unified memory pool"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_runners(
    counters: RouteCounters, changes: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert refusal(changes=changes) == why


def test_a_draft_model_leaves_the_route_on(counters: RouteCounters) -> None:
    """It shares its process with the model that it drafts for."""
    Server(changes={"is_draft_worker": True})
    assert not routes.is_disabled("attention")
    Batch(Server(), MIXED).check()
    assert counters.served.calls == 1


def test_an_unknown_parent(counters: RouteCounters, stand_ins: None) -> None:
    assert refusal(name="dsa") == "attention backend dsa"


def test_a_parent_that_is_called_otherwise(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TorchNativeAttnBackend, "forward_extend", lambda self, batch: None)
    assert "(self, batch), expected (self, q, k, v, layer" in refusal()


@pytest.mark.parametrize("backend", [Backend.FULL, Backend.BREAKABLE])
def test_prefill_in_graphs(
    counters: RouteCounters,
    published: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
) -> None:
    """On a GPU, where the user asks for them: they would replay without HK."""
    for prefill, why in ((backend, f"prefill in graphs ({backend})"), (Backend.DISABLED, "")):
        published(cuda_graph_config=CudaGraphConfig(prefill=PhaseConfig(backend=prefill)))
        runner = Server().runner
        runner.device = "cuda"
        assert refuse_server("torch_native", runner) == why


def refusal(**server: Any) -> str:
    """Why a server's prefill is not HK's: the backend is SGLang's own, and the log says so."""
    made = Server(**server)
    assert type(made.backend) is TorchNativeAttnBackend
    why = refuse_server(made.name, made.runner)
    return why or routes.verdict("attention").why


def test_a_broken_installation(
    counters: RouteCounters,
    environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
) -> None:
    """A package of ours that does not import: SGLang's backend as it is, and a reason."""
    import sys

    monkeypatch.setitem(sys.modules, "hk_sglang.attention.backend", None)
    server = Server()
    assert type(server.backend) is TorchNativeAttnBackend
    assert "HK cannot be loaded: ModuleNotFoundError" in routes.verdict("attention").why
    assert "SGLang serves attention without HK: HK cannot be loaded" in caplog.text
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="HK cannot be loaded: ModuleNotFoundError"):
        Server()


def test_a_broken_extension(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """No device: the parent computes, and the reason is the device's."""
    import hk_backend.devices

    def fail(device_type: str) -> Any:
        raise ImportError("_cpu: undefined symbol")

    monkeypatch.setattr(hk_backend.devices, "device_for", fail)
    Batch(Server(), MIXED).check()
    (why,) = counters.fallbacks
    assert why == "ImportError: _cpu: undefined symbol"
