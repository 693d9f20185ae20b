"""Whole engines whose FP8 layers MI355X machine code computes: split over ranks, compiled, and
quantised while they are loaded. In one process and eager: test_quantized_checkpoints.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hk_vllm.e2e.engine import COMPILED, SPAWNED, serve
from tests.integration.hk_vllm.e2e.linear_runner import overrides
from tests.integration.hk_vllm.e2e.quantized import scenario
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.e2e.engine import HK, Engines
from tests.integration.shared.e2e.quantized import (
    assert_all_by_hk,
    assert_checked,
    assert_on_gfx950,
    error_in,
)
from tests.integration.shared.e2e.rewritten import fp8_values, rewritten
from tests.integration.shared.e2e.rounding import assert_as_exact, assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import Scenario
from tests.integration.shared.linear.devices import CPU, GFX950
from tests.models import tiny_llama

pytestmark = pytest.mark.slow

SCHEME = SCHEMES["ct-channel-token"]
RANKS = SPAWNED | {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("models"), 64)


@pytest.fixture(scope="module")
def made(source: Path) -> Made:
    return make(SCHEME, source, source.parent)


@pytest.fixture(scope="module")
def served(made: Made, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Engines:
    on_cpu, plain = (scenario(SCHEME, made, "bfloat16", device=each) for each in (CPU, GFX950))

    def changed(name: str, environment: dict[str, str], **engine: Any) -> Scenario:
        return replace(
            plain,
            name=name,
            engine=plain.engine | engine,
            environment=plain.environment | environment,
        )

    weight_only = {"quantization": "hk_fp8", "hf_overrides": overrides({"activations": "none"})}
    scenarios = [
        replace(on_cpu, name=CPU),
        changed("ranks", RANKS, tensor_parallel_size=2),
        changed("compiled", COMPILED | {"HK_CHECK": "0"}, enforce_eager=False),
        replace(changed("online", {}, **weight_only), model=str(source)),
    ]
    return serve(scenarios, tmp_path_factory.mktemp("served"), HK)


@pytest.mark.parametrize(("name", "ranks"), [("ranks", 2), ("compiled", 1)])
def test_a_checkpoint(name: str, ranks: int, served: Engines, made: Made) -> None:
    found = served[name]
    assert len(found.rounds[-1].workers) == ranks
    assert_all_by_hk(found)
    assert_on_gfx950(found)
    assert_same_numbers(found, served[CPU], str(made.truth))
    if ranks > 1:
        assert_checked(found)


def test_in_graphs_vllm_rounds(served: Engines) -> None:
    """Its own quantiser, which Inductor fuses with the norm before it."""
    assert served.of("compiled").lines("saved AOT compiled function"), "nothing was compiled"
    before, [after] = served["compiled"].start[0], served["compiled"].rounds[-1].workers
    for name, count in after.launches.items():
        if name.startswith("quantize_fp8"):
            assert count == before.launches.get(name, 0), name


def test_quantised_while_loading(served: Engines, source: Path, tmp_path: Path) -> None:
    """The weights that the format has for the checkpoint's in bfloat16, and not these."""
    found = served["online"]
    assert_all_by_hk(found)
    assert_on_gfx950(found)
    assert_checked(found)
    truth = rewritten(source, tmp_path / "truth", lambda *of: fp8_values(of[0], of[1].bfloat16()))
    allowed = error_in("bfloat16", found, truth)
    assert_as_exact(error_of(found.rounds, str(truth)), allowed)
    with pytest.raises(AssertionError, match="error"):
        assert_as_exact(error_of(found.rounds, str(source)), allowed)
