"""Engines with an environment of their own, by name, and those of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.integration.hk_vllm.e2e.catalogue import CHUNKED, Case
from tests.integration.hk_vllm.e2e.engine import COMPILED, MEASURED, SPAWNED
from tests.integration.shared.e2e.engine import HK, Checkpoint
from tests.integration.shared.e2e.prompts import SMALL, Prompts, long_rounds
from tests.integration.shared.e2e.refusals import REFUSALS
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.integration.shared.linear.devices import GFX950
from tests.models import random_prompts

EMULATED_GPU = HK | {"HK_DEVICE": GFX950}
BROKEN = (
    "kernel_computes_wrong",
    "kernel_does_not_wait",
    "kernel_file_damaged",
    "linear_in_graphs",
)
"""Sabotages of the emulated device."""
TWO_RANKS = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "0|1"}


@dataclass(frozen=True)
class Single:
    """One engine over a tiny Llama; `long`: it serves `long_rounds`, or else a few prompts, once
    with each of `mutations`."""

    environment: dict[str, str]
    sabotage: str = ""
    engine: dict[str, object] = field(default_factory=dict)
    mutations: tuple[str, ...] = ("",)
    long: bool = False


SINGLES = {
    # stock, three ways to be it
    "without-plugin": Single({"VLLM_PLUGINS": ""}),
    "backend-unset": Single({}),
    "backend-0": Single({"HK_BACKEND": "0", "HK_DEVICE": "nonsense", "HK_CHECK": "1"}),
    # HK where it must work
    "measured-ranks": Single(
        HK | SPAWNED | MEASURED | TWO_RANKS, engine={"tensor_parallel_size": 2}
    ),
    "spawned": Single(HK | SPAWNED, long=True, engine={"enable_prefix_caching": True}),
    "tensor-parallel": Single(
        HK | SPAWNED | TWO_RANKS,
        long=True,
        engine={"tensor_parallel_size": 2, "enable_prefix_caching": True},
    ),
    "compiled": Single(HK | COMPILED, engine={"enforce_eager": False}),
    # HK that must step aside
    **{name: Single(each.environment, each.sabotage) for name, each in REFUSALS.items()},
    "engine-unknown": Single(HK, sabotage="engine_outside_contract"),
    "parent-unknown": Single(HK, sabotage="parent_outside_contract"),
    "strict": Single(HK | {"HK_STRICT": "1"}, sabotage="extension_missing"),
    "checked": Single(HK | {"HK_CHECK": "1"}, mutations=("", "scaled_output", "")),
}


def single(name: str, model: str) -> Scenario:
    """The scenario of one of `SINGLES` over the checkpoint `model`."""
    of = SINGLES[name]
    prompts = random_prompts(SMALL, seed=9)
    rounds = [Round(prompts, max_tokens=4, mutation=fault) for fault in of.mutations]
    if of.long:
        rounds = long_rounds(Prompts("tiny-64", model))
    engine = {**CHUNKED, **of.engine}
    return Scenario(name, model, rounds, "float32", engine, of.sabotage, of.environment)


def of_case(case: Case, checkpoint: Checkpoint) -> Scenario:
    """The scenario of a case of the catalogue."""
    return case.scenario(checkpoint(case.model))
