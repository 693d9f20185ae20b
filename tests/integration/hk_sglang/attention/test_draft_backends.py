"""The backends that SGLang's factory makes for a draft model: those that HK wraps, and not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hk_sglang.attention.drafts import is_copy
from hk_sglang.attention.server import refuse_server
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.draft_utils import DraftBackendFactory

from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.adapter import Environment
from tests.integration.hk_sglang.attention import engine
from tests.integration.hk_sglang.attention.batch import Server, is_wrapped
from tests.integration.hk_sglang.attention.drafter import Drafter, Steps, drafter
from tests.integration.shared.attention.expected import check_rows

STEPS = 4
CACHED = [30, 1, 16]
COPIED = ForwardMode.DECODE, ForwardMode.DRAFT_EXTEND_V2


@pytest.mark.parametrize(
    ("algorithm", "flags", "why"),
    [
        ("EAGLE", {}, ""),
        ("EAGLE3", {}, ""),
        ("STANDALONE", {}, ""),
        ("EAGLE", {"enable_multi_layer_eagle": True}, "a draft model"),
        ("FROZEN_KV_MTP", {}, "a draft model"),
        ("DFLASH", {}, "a draft model"),
    ],
)
def test_drafters(
    published: Callable[..., None], algorithm: str, flags: dict[str, Any], why: str
) -> None:
    """HK serves the draft models of SGLang's EAGLE worker, which have keys of their own."""
    published(**flags)
    runner = Server(changes=drafter(algorithm)).runner
    assert refuse_server("torch_native", runner) == why


def test_a_class_without_graphs(decode: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class of intel_amx calls no method of its backends, and has none for graphs."""

    def init_forward_metadata(self: Any, forward_batch: Any) -> None:
        for each in self.attn_backends:
            each.forward_metadata = (None, None)

    monkeypatch.setattr(Steps, "init_forward_metadata", init_forward_metadata)
    monkeypatch.delattr(Steps, "init_forward_metadata_out_graph")
    drafter = Drafter(STEPS)
    batch = drafter.drafting(CACHED)
    engine.without_parent(monkeypatch)
    check_rows(drafter.run(batch), drafter.made(batch))
    assert decode.served == Tally(STEPS - 1, (STEPS - 1) * len(CACHED))


def test_the_first_backend_goes(decode: RouteCounters) -> None:
    """SGLang replaces it by the factory's. Its workspace may take gigabytes of a GPU."""
    drafter = Drafter(STEPS)
    first = weakref.ref(drafter.first)
    del drafter.first
    gc.collect()
    assert first() is None


def test_an_error_of_hk(
    decode: RouteCounters, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """SGLang then drafts without HK, which serves the target. No step is wrapped alone.

    Triton's class refills a graph without its backends, so that HK's rows would be those before.
    """

    def fail(parent: Any) -> Any:
        raise TypeError("of another layout")

    monkeypatch.setattr("hk_sglang.attention.draft_backends.steps_wrapper_of", fail)
    drafter = Drafter(STEPS)
    assert all(type(each) is TorchNativeAttnBackend for each in drafter.steps.attn_backends)
    assert type(drafter.steps) is Steps
    assert is_wrapped(drafter.server.backend)
    assert not routes.is_disabled("attention")
    assert "HK cannot be loaded: TypeError: of another layout" in caplog.text


@pytest.mark.parametrize("mode", ["DECODE", "DRAFT_EXTEND_V2"])
def test_copies(mode: str) -> None:
    """A copy has the same drafts, and is no other batch of as many requests or of that mode."""
    facts = {"forward_mode": ForwardMode[mode], "spec_info": object(), "batch_size": 2}
    planned = SimpleNamespace(**facts)
    assert is_copy(SimpleNamespace(**facts), planned)
    for other in (
        {"spec_info": object()},
        {"spec_info": None},
        {"batch_size": 3},
        {"forward_mode": next(each for each in COPIED if each is not planned.forward_mode)},
    ):
        assert not is_copy(SimpleNamespace(**facts | other), planned)


@pytest.mark.parametrize(
    ("mode", "drafts"), [("DECODE", None), ("EXTEND", object()), ("TARGET_VERIFY", object())]
)
def test_batches_that_are_never_copies(mode: str, drafts: Any) -> None:
    """Batches without drafts have nothing in common, and others are planned anew."""
    facts = {"forward_mode": ForwardMode[mode], "spec_info": drafts, "batch_size": 2}
    assert not is_copy(SimpleNamespace(**facts), SimpleNamespace(**facts))


# -- backends that HK does not wrap


def test_the_users_own_choice(decode: RouteCounters) -> None:
    """A flag for the draft model alone, which says nothing of the served one's attention."""
    flags = {"prefill_attention_backend": None, "attention_backend": "hk"}
    own = SimpleNamespace(**flags, speculative_draft_attention_backend="torch_native")
    drafter = Drafter(STEPS, changes={"server_args": own})
    backends = drafter.first, drafter.server.backend, drafter.steps, *drafter.steps.attn_backends
    assert not any(map(is_wrapped, backends))
    assert not routes.is_disabled("attention")


def test_another_class(
    decode: RouteCounters, environment: Environment, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """SGLang may draft on another backend than it serves prompts with, which HK has not judged."""

    class Other(TorchNativeAttnBackend):
        pass

    drafter = Drafter(STEPS)
    again = DraftBackendFactory(drafter.server.runner, 1, STEPS)
    monkeypatch.setattr(
        "tests.integration.hk_sglang.attention.drafter.TorchNativeAttnBackend", Other
    )
    for make in (again.create_decode_backend, again.create_draft_extend_backend):
        assert not is_wrapped(make())
        assert "drafts on Other, not on TorchNativeAttnBackend" in caplog.text
        caplog.clear()
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="drafts on Other"):
        again.create_decode_backend()


def test_another_pool(decode: RouteCounters, caplog: Any) -> None:
    """HK has proven that it reads the pool of the first backend, and no other."""
    drafter = Drafter(STEPS)
    runner = drafter.server.runner
    runner.token_to_kv_pool = Drafter(STEPS).server.pool
    again = DraftBackendFactory(runner, 1, STEPS)
    for make in (again.create_decode_backend, again.create_draft_extend_backend):
        assert not is_wrapped(make())
        assert "a KV pool that is not the draft model's" in caplog.text
        caplog.clear()


def test_steps_that_are_called_otherwise(
    decode: RouteCounters, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """HK plans the steps around methods of SGLang's class, whose arguments it has to know."""
    monkeypatch.setattr(Steps, "init_forward_metadata", lambda self, batch, step: None)
    assert not is_wrapped(Drafter(STEPS).steps)
    assert "(self, batch, step), expected (self, forward_batch" in caplog.text
