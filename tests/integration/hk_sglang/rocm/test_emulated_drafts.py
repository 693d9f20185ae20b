"""A whole SGLang engine with a draft model on an emulated MI355X, where HK drafts and verifies.

The draft model is the target itself, so that some drafts are right. The tree of drafts and their
acceptance are SGLang's Triton kernels. The engines are otherwise those of
test_emulated_engine.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hk_backend.lab.stock import sglang_engine
from tests.integration.hk_sglang.conftest import ENVIRONMENT
from tests.integration.hk_sglang.rocm.test_emulated_engine import BY_HK, ENGINE, RUNNER
from tests.integration.shared.attention.rows import DRAFTS
from tests.integration.shared.e2e.compare import assert_decoded, assert_routed
from tests.integration.shared.e2e.engine import HK, Checkpoint, Engines, Forks, serve
from tests.integration.shared.e2e.oracle import score
from tests.integration.shared.e2e.rounding import assert_as_exact, assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.models import random_prompts

ON_GFX950 = HK | {"HK_DEVICE": "emulated:gfx950", "HK_EVIDENCE": "ignore"}
PROMPTS = random_prompts([7, 40, 90], seed=9)
ROUND = Round(PROMPTS, max_tokens=12, teacher_forced=False)
FAULTY = replace(ROUND, mutation="PageOffByOne")


@pytest.fixture(scope="module")
def engines(folder: Path, checkpoint: Checkpoint) -> Iterator[Engines]:
    """The engine with drafts, and one without."""
    forks = Forks(RUNNER, ENVIRONMENT | sglang_engine.ENVIRONMENT)
    model = checkpoint("tiny-64")
    drafts = {
        "speculative_algorithm": "STANDALONE",
        "speculative_draft_model_path": model,
        "speculative_num_steps": DRAFTS,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 1 + DRAFTS,
    }

    def scenario(name: str, rounds: list[Round], more: dict[str, object]) -> Scenario:
        return Scenario(name, model, rounds, "bfloat16", ENGINE | BY_HK | more, "", ON_GFX950)

    scenarios = [scenario("drafted", [ROUND, FAULTY], drafts), scenario("alone", [ROUND], {})]
    into = folder / "drafts"
    yield Engines(lambda each: serve(forks, each, into, {}, RUNNER), scenarios, into)
    forks.stop()


@pytest.mark.engine_proof
def test_rows(engines: Engines) -> None:
    """HK computes the prompts of both models, and every row of drafts.

    The target verifies them, the draft model computes what was verified again (DRAFT_EXTEND_V2),
    and decodes in one step less than there are drafts.
    """
    drafted = engines["drafted"]
    healthy = replace(drafted, rounds=drafted.rounds[:1])
    assert_routed(healthy, models=2)
    assert_decoded(healthy, 2 * (1 + DRAFTS) + DRAFTS - 1, models=2)


@pytest.mark.engine_proof
def test_tokens(engines: Engines, checkpoint: Checkpoint) -> None:
    """The tokens are those of the engine without drafts: greedy ones, but for rounding.

    It may take another token than the truth's. That one is less likely by at most the errors of the
    two engines. With a fault in HK's decode the numbers are wrong.
    """
    model = checkpoint("tiny-64")
    drafted, alone = engines["drafted"], engines["alone"]
    healthy, faulty = drafted.rounds
    assert_same_numbers(replace(drafted, rounds=[healthy]), alone, model)
    regrets = [regret for answer in healthy.answers for regret in score(model, answer).regrets]
    assert np.mean(regrets) <= 2 * error_of(alone.rounds, model).mean
    rows, every = (
        sum(batch.decodes for batch in of.rounds[0].batches or []) for of in (drafted, alone)
    )
    assert rows < every, "no draft was accepted"
    assert faulty.workers[0].mutated_calls > healthy.workers[0].mutated_calls
    with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
        assert_as_exact(error_of([faulty], model), error_of(alone.rounds, model))
