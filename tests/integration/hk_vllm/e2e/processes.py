"""Every kind of engine process that the end-to-end tests need, by name: its environment, its
scenarios, each of which has a process of its own.

A test names the processes that it reads: `@pytest.mark.engine("hk")`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.integration.hk_vllm.e2e.catalogue import CHUNKED, EMULATED, FAULTY, Case
from tests.integration.hk_vllm.e2e.engine import COMPILED, MEASURED, SPAWNED, serve
from tests.integration.shared.e2e.engine import HK, Checkpoint, Served
from tests.integration.shared.e2e.prompts import SMALL, Prompts, long_rounds
from tests.integration.shared.e2e.refusals import REFUSALS
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.models import random_prompts


@dataclass(frozen=True)
class Process:
    """`engine`, `mutations`, ...: of its one scenario, if it does not serve the catalogue's cases.

    `broken`: after those it serves the first of them again, once with each of these sabotages.
    """

    environment: dict[str, str]
    sabotage: str = ""
    engine: dict[str, object] = field(default_factory=dict)
    mutations: tuple[str, ...] = ("",)
    dtype: str = "float32"
    long: bool = False
    broken: tuple[str, ...] = ()

    def scenario(self, checkpoint: Checkpoint) -> Scenario:
        model = checkpoint("tiny-64")
        if self.long:
            rounds = long_rounds(Prompts("tiny-64", model))
        else:
            prompts = random_prompts(SMALL, seed=9)
            rounds = [Round(prompts, max_tokens=4, mutation=fault) for fault in self.mutations]
        engine = {**CHUNKED, **self.engine}
        return Scenario("only", model, rounds, self.dtype, engine, self.sabotage)

    def run(self, cases: list[Case], checkpoint: Checkpoint, folder: Path) -> Served:
        """Serve the one scenario, or `cases` if there are any."""
        scenarios = [case.scenario(checkpoint(case.model)) for case in cases]
        for name in self.broken:
            scenarios.append(replace(scenarios[0], name=name, sabotage=name))
        return serve(scenarios or [self.scenario(checkpoint)], folder, self.environment)


CATALOGUE = {
    "stock": Process({}),
    "hk": Process(HK),
    "emulated": Process(
        HK | {"HK_DEVICE": "emulated:gfx950"},
        broken=(
            "kernel_computes_wrong",
            "kernel_does_not_wait",
            "kernel_file_damaged",
            "linear_in_graphs",
        ),
    ),
}
"""Serve the catalogue: stock everything but the faults, HK everything, emulated its own part."""

TWO_RANKS = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "0|1"}
SINGLE = {
    # stock, three ways to be it
    "without-plugin": Process({"VLLM_PLUGINS": ""}),
    "backend-unset": Process({}),
    "backend-0": Process({"HK_BACKEND": "0", "HK_DEVICE": "nonsense", "HK_CHECK": "1"}),
    # HK where it must work
    "measured-ranks": Process(
        HK | SPAWNED | MEASURED | TWO_RANKS, engine={"tensor_parallel_size": 2}
    ),
    "spawned": Process(HK | SPAWNED, long=True, engine={"enable_prefix_caching": True}),
    "tensor-parallel": Process(
        HK | SPAWNED | TWO_RANKS,
        long=True,
        engine={"tensor_parallel_size": 2, "enable_prefix_caching": True},
    ),
    "compiled": Process(HK | COMPILED, engine={"enforce_eager": False}),
    # HK that must step aside
    **{name: Process(each.environment, each.sabotage) for name, each in REFUSALS.items()},
    "engine-unknown": Process(HK, sabotage="engine_outside_contract"),
    "parent-unknown": Process(HK, sabotage="parent_outside_contract"),
    "strict": Process(HK | {"HK_STRICT": "1"}, sabotage="extension_missing"),
    "checked": Process(HK | {"HK_CHECK": "1"}, mutations=("", "scaled_output", "")),
}

PROCESSES = CATALOGUE | SINGLE


def cases_of(name: str, selected: list[Case]) -> list[Case]:
    """The cases that the process `name` serves of those selected; none if it is not for them."""
    if name not in CATALOGUE:
        return []
    if name == "emulated":
        return [case for case in selected if case in EMULATED]
    return [case for case in selected if name == "hk" or case not in FAULTY]
