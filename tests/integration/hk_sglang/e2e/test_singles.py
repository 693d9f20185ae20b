"""Engines that run in one variant only, and engines under each kind of traffic.

The former are stock, split over ranks, over caches of other forms, or with something in HK's way.
Under traffic an engine answers as transformers and SGLang's own plain attention do.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.integration.hk_sglang.e2e.catalogue import CHUNKED, RADIX, TWO_RANKS
from tests.integration.shared.e2e import case as shared
from tests.integration.shared.e2e import singles
from tests.integration.shared.e2e.case import assert_as_near, assert_equal, assert_met
from tests.integration.shared.e2e.compare import (
    assert_not_loaded,
    assert_routed,
    assert_true_logprobs,
)
from tests.integration.shared.e2e.engine import HK, Checkpoint, Engines, Reader
from tests.integration.shared.e2e.narrow_cache import assert_faults_seen, assert_over
from tests.integration.shared.e2e.prompts import Prompts, prefix_rounds
from tests.integration.shared.e2e.scenario import (
    Answer,
    Round,
    RoundResult,
    Scenario,
    ScenarioResult,
)
from tests.integration.shared.e2e.singles import (
    WORDS,
    Single,
    assert_checked,
    assert_long,
    assert_ranks_measured,
    assert_serves_and_says_why,
    assert_stock,
)

pytestmark = pytest.mark.engine_proof

STOCK = {"attention_backend": "torch_native"}
CACHE = tempfile.TemporaryDirectory(prefix="hk-measurements-")
"""A folder for measurements, empty when the session begins."""
MEASURED = {"HK_EVIDENCE": "measure", "HK_CACHE_DIR": CACHE.name}
"""This machine's times decide who computes a layer."""
RANKS = HK | TWO_RANKS
DECODE_FLAG = {"prefill_attention_backend": "torch_native", "decode_attention_backend": "hk"}
SINGLES = singles.SINGLES | {
    "without-plugin": Single({"SGLANG_PLUGINS": "none"}),
    "measured-ranks": Single(RANKS | MEASURED, {"tp_size": 2}),
    "tensor-parallel": Single(RANKS, {"tp_size": 2}, long=True),
    "hnd": Single(  # SGLang's plain attention cannot read it, so there is nothing to decode with
        HK | {"SGLANG_USE_HND_KVCACHE": "1"}, {"page_size": 16}, long=True, decodes=False
    ),
    # HK that must step aside
    "decode-flag": Single({}, DECODE_FLAG),
    "other-flag": Single(HK, STOCK),
    "strict-bad-backend": Single({"HK_BACKEND": "atention", "HK_STRICT": "1"}),
    **{
        f"{dtype}-{side}": Single(environment, {"kv_cache_dtype": dtype}, long=True)
        for dtype in ("fp8_e4m3", "fp8_e5m2")
        for side, environment in (("hk", HK), ("stock", {}))
    },
}


@pytest.fixture
def served(engines: Engines, checkpoint: Checkpoint) -> Reader:
    """A reader of what each engine of `SINGLES` left behind."""
    model = checkpoint("tiny-64")
    engines.add(
        of.asked(name, model, RADIX if of.long else CHUNKED) for name, of in SINGLES.items()
    )
    return engines.of


@pytest.mark.parametrize("name", ["backend-unset", "backend-0"])
def test_without_hk_backend(name: str, served: Reader) -> None:
    """SGLang is stock, bit for bit, and nothing of HK is even imported."""
    assert_stock(served(name), served("without-plugin"))


# -- HK must step aside

REASONS = {
    "decode-flag": [
        "decode_attention_backend: HK computes decode beside its prefill only, using SGLang's own"
    ],
    "other-flag": ["the server's own choice of torch_native for prefill"],
    **WORDS,
    "engine-unknown": ["AttentionBackend.init_forward_metadata", "batch", "forward_batch"],
}


@pytest.mark.parametrize("name", REASONS)
def test_serves_and_says_why(name: str, served: Reader, checkpoint: Checkpoint) -> None:
    assert_serves_and_says_why(name, REASONS[name], served(name), checkpoint("tiny-64"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("strict", "hk_backend._cpu cannot be loaded"),
        ("strict-bad-backend", "HK_BACKEND='atention'"),
    ],
)
def test_strict_stops_the_engine(name: str, why: str, served: Reader) -> None:
    """HK_STRICT=1 makes an error of each fallback, though SGLang swallows the errors of plugins."""
    engine = served(name)
    assert engine.exit_code != 0 or engine.error
    assert engine.lines("HK_STRICT=1", why), engine.log


def test_shadow_check(served: Reader, checkpoint: Checkpoint) -> None:
    assert_checked(served("checked"), checkpoint("tiny-64"), "switched off")


# -- processes and caches


@pytest.mark.parametrize(("name", "ranks"), [("tensor-parallel", 2), ("hnd", 1)])
def test_long(name: str, ranks: int, served: Reader, checkpoint: Checkpoint) -> None:
    assert_long(served(name), ranks, checkpoint("tiny-64"))


def test_ranks_that_measure(served: Reader, checkpoint: Checkpoint) -> None:
    assert_ranks_measured(served, checkpoint("tiny-64"))


DTYPES = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


@pytest.mark.parametrize("dtype", DTYPES)
def test_fp8(dtype: str, served: Reader, checkpoint: Checkpoint) -> None:
    """A KV cache narrower than the model gives the answers of attention over its codes.

    This holds for HK and SGLang alone, for chunks and for a cached prefix. A fault in HK then
    shows.
    """
    found, expected = served(f"{dtype}-hk").only, served(f"{dtype}-stock").only
    assert_not_loaded(expected)
    assert_routed(found)
    truth = checkpoint("tiny-64")
    for rounds in (found.rounds, expected.rounds):
        chunks, prefix, cached, _ = rounds
        assert all(answer.cached_tokens >= 256 for answer in cached.answers)
        assert_over(DTYPES[dtype], answers(chunks, prefix, cached), truth)
    chunks = found.rounds[0]
    assert_faults_seen(DTYPES[dtype], chunks.answers, truth)
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(chunks.answers, truth)
    with pytest.raises(AssertionError, match="median error"):
        assert_over(DTYPES[dtype], answers(found.rounds[-1]), truth)


def answers(*rounds: RoundResult) -> list[Answer]:
    return [answer for item in rounds for answer in item.answers]


# -- traffic of each kind


FLAGS = {
    "flag": {"attention_backend": "hk"},
    "prefill_flag": {"prefill_attention_backend": "hk", "decode_attention_backend": "torch_native"},
}
"""Kinds that ask for HK by SGLang's own flags, and by nothing in the environment."""


def traffic(kind: str, prompts: Prompts) -> tuple[dict[str, Any], list[Round]]:
    """The engine's arguments and its rounds."""
    if kind == "retracted":
        # The cache is too small: some requests are thrown out and computed again. SGLang admits
        # none that does not fit beside those of the same step. It counts less for requests that run
        # already and may stop early. So the requests begin one by one.
        engine = {"max_total_tokens": 320, "max_running_requests": 4, "chunked_prefill_size": 64}
        asked = prompts.of([61, 45, 64, 50])
        rounds = [Round(asked, max_tokens=60, teacher_forced=False, ignore_eos=False)]
        return {**engine, "schedule_conservativeness": 0.01}, rounds
    asked = prompts.of(prompts.lengths())
    if kind == "whole":  # every prompt in one piece; then prefixes that the radix cache has
        return {}, [Round(asked), *prefix_rounds(prompts)]
    # extends beside fresh rows; then, without log-probabilities, decodes too
    return CHUNKED, [Round(asked), Round(asked, max_tokens=12, tokens_only=True)]


class Case(shared.Case):
    def scenarios(self, checkpoint: Checkpoint) -> list[Scenario]:
        """Scenarios of HK and, in half precision, of SGLang's own plain attention."""
        model = checkpoint(self.model)
        engine, rounds = traffic(self.kind, Prompts(self.model, model))
        engine = {"page_size": self.block_size, **engine}
        stock = Scenario(f"stock-{self}", model, rounds, self.dtype, engine | STOCK)
        flags, environment = FLAGS.get(self.kind, {}), {} if self.kind in FLAGS else HK
        hk = replace(stock, name=f"hk-{self}", engine=engine | flags, environment=environment)
        return [hk] if self.dtype == "float32" else [hk, stock]


FLOAT32 = [
    Case("tiny-64", "float32", "whole", 16),
    Case("tiny-128", "float32", "whole", 64),
    Case("smollm2", "float32", "whole", 1),
    Case("tiny-64", "float32", "chunked", 64),
    Case("tiny-128", "float32", "chunked", 1),
    Case("smollm2", "float32", "chunked", 16),
    Case("tiny-64", "float32", "retracted", 1),
    Case("tiny-64", "float32", "flag", 64),
    Case("tiny-128", "float32", "prefill_flag", 1),
]
HALF = [
    Case("tiny-64", "bfloat16", "chunked", 1),
    Case("tiny-128", "bfloat16", "whole", 64),
    Case("smollm2", "bfloat16", "chunked", 16),
    Case("tiny-128", "float16", "chunked", 16),
]
KINDS = {"whole": ("whole", "prefix"), "retracted": ("preempted",)}
"""Steps that an engine must have met under a kind of traffic, if not chunks beside decodes."""


def answered(case: Case, engines: Engines, checkpoint: Checkpoint) -> ScenarioResult:
    """The answers with HK, after a check that the engine met this kind of traffic."""
    engines.add(case.scenarios(checkpoint))
    found = engines[f"hk-{case}"]
    for kind in KINDS.get(case.kind, ("chunked",)):
        assert_met(kind, found)
    return found


@pytest.mark.parametrize("case", FLOAT32, ids=str)
def test_float32(case: Case, engines: Engines, checkpoint: Checkpoint) -> None:
    tokens_only = 0 if case.kind in KINDS else 1
    assert_equal(answered(case, engines, checkpoint), checkpoint(case.model), tokens_only)


@pytest.mark.held
@pytest.mark.parametrize("case", HALF, ids=str)
def test_half_precision(case: Case, engines: Engines, checkpoint: Checkpoint) -> None:
    found = answered(case, engines, checkpoint)
    assert_as_near(found, engines[f"stock-{case}"], checkpoint(case.model))
