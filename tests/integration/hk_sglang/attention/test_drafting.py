"""A draft model's own batches outside of graphs: prefill, DRAFT_EXTEND_V2, and its steps.

HK computes those of chains, on the backends that SGLang's factory makes for drafts.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention.hk_attention import NO_PLAN
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.speculative.eagle_info import EagleDraftExtendInput, EagleDraftInput

from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.adapter import Environment
from tests.integration.hk_sglang.attention import engine
from tests.integration.hk_sglang.attention.batch import MIXED, PREFILL, Batch
from tests.integration.hk_sglang.attention.drafter import Drafter, Steps, stand_ins
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.expected import check_rows

STEPS = 4
CACHED = [30, 1, 15, 16, 77]
FP8 = torch.float8_e4m3fn


# -- what HK computes


def test_prefill(attention: RouteCounters) -> None:
    """The draft model's prompts are its target's, chunks and cached ones too."""
    batch = Batch(Drafter(STEPS).server, MIXED)
    batch.metadata.spec_info = EagleDraftExtendInput(num_tokens_per_req=1)
    batch.check()
    assert attention.served == Tally(1, PREFILL)


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("steps", [1, STEPS, 15])
def test_extend(
    decode: RouteCounters, monkeypatch: pytest.MonkeyPatch, steps: int, page_size: int
) -> None:
    """Verified tokens are written to the draft model's pool, and see each other causally."""
    batch = Drafter(steps, page_size=page_size).extend(CACHED)
    engine.without_parent(monkeypatch)
    batch.check()
    assert decode.served == Tally(1, len(CACHED) * (1 + steps))
    assert not decode.fallbacks
    assert not routes.counters("attention").fallbacks


def test_extend_over_windows(decode: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    windows: dict[str, Any] = {"layers": [{}, {"sliding_window_size": 15}], "windows": (1,)}
    batch = Drafter(STEPS, **windows).extend(CACHED)
    engine.without_parent(monkeypatch)
    full, window = batch.run()
    check_rows(full, batch.made(0))
    check_rows(window, batch.made(1), sliding_window=16)
    for index in range(2):
        batch._check_pool(index)
    assert decode.served == Tally(2, 2 * len(CACHED) * (1 + STEPS))


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("steps", [2, STEPS])
def test_steps(
    decode: RouteCounters, monkeypatch: pytest.MonkeyPatch, steps: int, page_size: int
) -> None:
    """Each step sees the tokens of those before it, which SGLang's lengths do not count."""
    drafter = Drafter(steps, page_size=page_size)
    batch = drafter.drafting(CACHED)
    engine.without_parent(monkeypatch)
    found = drafter.run(batch)
    check_rows(found, drafter.made(batch))
    for row, request in enumerate(batch.requests):
        slots = drafter.server.tables.req_to_token[request, : CACHED[row] + steps - 1].long()
        buffers = drafter.server.pool.get_kv_buffer(0)
        for made, buffer in zip((batch.keys, batch.values), buffers, strict=True):
            assert torch.equal(buffer[slots], made[0][row][:-1])
    assert decode.served == Tally(steps - 1, (steps - 1) * len(CACHED))
    assert not decode.fallbacks


def test_steps_over_a_pool_of_fp8(decode: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = Drafter(STEPS, kv_dtype=FP8)
    batch = drafter.drafting(CACHED)
    engine.without_parent(monkeypatch)
    found = drafter.run(batch)
    stored = [
        (query, key.to(FP8).float(), value.to(FP8).float())
        for query, key, value in drafter.made(batch)
    ]
    check_rows(found, stored)
    with pytest.raises(AssertionError):
        check_rows(found, drafter.made(batch))


def test_steps_at_the_end_of_a_table(
    decode: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request whose last draft is the last token that a table has room for."""
    drafter = Drafter(STEPS)
    batch = drafter.drafting([256 - STEPS, 3])
    engine.without_parent(monkeypatch)
    check_rows(drafter.run(batch), drafter.made(batch))
    assert decode.served == Tally(STEPS - 1, (STEPS - 1) * 2)


def test_a_copy_of_an_extend(decode: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang may copy the batch once its metadata is made, as it does with each step's."""
    batch = Drafter(STEPS).extend(CACHED)
    batch.server.backend.init_forward_metadata(batch.metadata)
    batch.metadata = replace(batch.metadata)
    engine.without_parent(monkeypatch)
    check_rows(batch.call(), batch.made())
    assert decode.served == Tally(1, len(CACHED) * (1 + STEPS))


def test_layers_are_judged_once(decode: RouteCounters) -> None:
    """All backends of the draft model know of its layers what the first one found out."""
    drafter = Drafter(STEPS)
    backends = drafter.server.backend, *drafter.steps.attn_backends
    assert all(each.hk._layers is drafter.first.hk._layers for each in backends)
    assert all(type(each).__base__ is TorchNativeAttnBackend for each in backends)
    assert isinstance(drafter.steps, Steps)
    assert routes.counters("decode").layers == 1


def test_one_step_has_no_backend(decode: RouteCounters) -> None:
    """The one draft comes from DRAFT_EXTEND_V2, so that SGLang's factory makes nothing."""
    assert Drafter(1).steps is None


# -- what SGLang computes


@pytest.mark.parametrize(
    ("topk", "changes", "why"),
    [
        (2, {}, "a tree of drafts"),
        (1, {"draft_window_size": 8}, "a window for drafting alone"),
    ],
)
def test_other_steps(
    decode: RouteCounters,
    monkeypatch: pytest.MonkeyPatch,
    topk: int,
    changes: dict[str, Any],
    why: str,
) -> None:
    for name, value in changes.items():
        monkeypatch.setattr(Steps, name, value, raising=False)
    drafter = Drafter(STEPS, topk)
    drafter.run(drafter.drafting(CACHED))
    tokens = (STEPS - 1) * len(CACHED) * topk
    assert decode.fallbacks == {why: Tally(STEPS - 1, tokens)}
    assert not routes.counters("attention").fallbacks


def test_steps_over_two_pools(decode: RouteCounters) -> None:
    windows: dict[str, Any] = {"layers": [{}, {"sliding_window_size": 15}], "windows": (1,)}
    drafter = Drafter(STEPS, **windows)
    drafter.run(drafter.drafting(CACHED))
    fell_back_each_step(decode, "drafting over two pools")


def fell_back_each_step(decode: RouteCounters, why: str) -> None:
    assert decode.fallbacks == {why: Tally(STEPS - 1, (STEPS - 1) * len(CACHED))}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"seq_lens_cpu": None}, "no sequence lengths on the host"),
        ({"tbo_parent_token_range": (0, 3)}, "two-batch overlap"),
    ],
)
def test_other_batches_of_steps(decode: RouteCounters, changes: dict[str, Any], why: str) -> None:
    drafter = Drafter(STEPS)
    batch = drafter.drafting(CACHED)
    vars(batch.metadata).update(changes)
    drafter.run(batch)
    fell_back_each_step(decode, why)


@pytest.mark.parametrize(
    ("drafts", "why"),
    [
        (SimpleNamespace(), "drafts of SimpleNamespace"),
        (
            EagleDraftExtendInput(num_tokens_per_req=1 + STEPS, num_front_tokens=2),
            "drafts behind tokens that are computed again",
        ),
    ],
)
def test_other_extends(decode: RouteCounters, drafts: Any, why: str) -> None:
    batch = Drafter(STEPS).extend(CACHED)
    batch.metadata.spec_info = drafts
    batch.check()
    assert [why] == list(decode.fallbacks)
    assert not routes.counters("attention").fallbacks


def test_drafts_of_another_batch(decode: RouteCounters) -> None:
    """A copy of a batch has the same drafts. HK never takes the metadata of other drafts."""
    drafter = Drafter(STEPS)
    batch = drafter.drafting(CACHED)
    drafter.steps.init_forward_metadata(batch.metadata)
    batch.metadata = replace(batch.metadata, spec_info=EagleDraftInput(num_tokens_per_req=1))
    drafter.call(batch)
    assert decode.served == Tally()
    extend = drafter.extend(CACHED)
    drafter.server.backend.init_forward_metadata(extend.metadata)
    other = drafter.extend(CACHED, seed=1)
    other.call()
    fell_back(routes.counters("attention"), NO_PLAN.refusal, other.num_tokens)


def test_decode_is_no_route(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of several tokens are then prefill's, which leaves them; steps are not counted."""
    environment(HK_EVIDENCE="ignore")
    stand_ins(monkeypatch)
    with engine.routed() as counters:
        drafter = Drafter(STEPS)
        drafter.run(drafter.drafting(CACHED))
        assert all(each.hk._planned is None for each in drafter.steps.attn_backends)
        assert not counters.fallbacks
        batch = drafter.extend(CACHED)
        batch.check()
        fell_back(counters, "drafting", batch.num_tokens)


@pytest.mark.parametrize("off", ["attention", "decode"])
def test_switched_off(decode: RouteCounters, off: str) -> None:
    """A route that is switched off while the server runs, as after an error of a kernel."""
    drafter = Drafter(STEPS)
    routes.disable(off, "switched off")
    drafter.run(drafter.drafting(CACHED))
    drafter.extend(CACHED).check()
    Batch(drafter.server, MIXED).check()
    assert (decode.served == Tally()) == (off == "decode")
    assert (routes.counters("attention").served == Tally()) == (off == "attention")
