"""Extends over the paged cache of a ROCm backend, computed by MI355X machine code.

As test_end_to_end.py, with HK_DEVICE=emulated:gfx950: chunked prefill and prefix caching through
the kernels that ship, beside the same engines with HK on the cpu device.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hk_vllm.e2e.engine import serve
from tests.integration.hk_vllm.rocm.parents import PARENTS
from tests.integration.hk_vllm.rocm.test_end_to_end import ENGINE, assert_traffic, rounds
from tests.integration.shared.e2e.compare import assert_routed
from tests.integration.shared.e2e.engine import HK, Engines
from tests.integration.shared.e2e.rounding import (
    assert_as_exact,
    assert_same_numbers,
    error_of,
)
from tests.integration.shared.e2e.scenario import Round, Scenario, ScenarioResult
from tests.kernels.catalogues import serving_few
from tests.models import random_prompts, tiny_llama

DEVICES = ("emulated:gfx950", "cpu")
READ_IN_PLACE = (
    ("rocm-attn", 64),  # K [B, H, D/x, N, x] and V [B, H, D, N]: the default
    ("rocm-attn", 128),
    ("aiter-fa", 64),  # [B, H, N, 2D]
    ("aiter-fa", 128),
    ("aiter-fa-planes", 64),  # HND: a plane per head
    ("unified", 64),
    ("triton-nhd", 64),  # NHD
    ("aiter-fa-shuffled", 64),  # the same K, V [B, H, N/x, D, x]
)
"""Parents, and head sizes."""
FAULTS = ("PageOffByOne", "ValuesAsRows")
SPLIT = ("rocm-attn", "aiter-fa-shuffled")
Results = tuple[ScenarioResult, ScenarioResult, str]


def faulty(fault: str) -> Round:
    """Prompts that find their beginnings in the cache, read with `fault`."""
    [first, _] = rounds()
    tails = random_prompts([24] * len(first.prompts), seed=4 + FAULTS.index(fault))
    prompts = [prompt + tail for prompt, tail in zip(first.prompts, tails, strict=True)]
    return Round(prompts, teacher_forced=False, mutation=fault)


def serve_on(device: str, scenarios: list[Scenario], folder: Path, **more: str) -> Engines:
    """`scenarios` over the parents that they name, by HK on `device`."""
    return serve(
        scenarios,
        folder / device.partition(":")[0],
        {**HK, "HK_DEVICE": device, "OMP_NUM_THREADS": "1", **more},
        runner="tests.integration.hk_vllm.rocm.runner",
    )


class OnBothDevices:
    """Every engine on both devices, and the checkpoints that they serve."""

    def __init__(self, folder: Path) -> None:
        self._checkpoints = {size: str(tiny_llama(folder, size)) for size in (64, 128)}
        scenarios = [self.scenario(*case) for case in READ_IN_PLACE]
        rounds_with_faults = [*rounds(), *map(faulty, FAULTS)]
        broken = replace(scenarios[0], name="rocm-attn hk broken", rounds=rounds_with_faults)
        self._served = [serve_on(device, [*scenarios, broken], folder) for device in DEVICES]

    def scenario(self, parent: str, head_size: int, **engine: Any) -> Scenario:
        engine = {**ENGINE, "block_size": PARENTS[parent].block_size, **engine}
        name, checkpoint = f"{parent} hk d{head_size}", self._checkpoints[head_size]
        return Scenario(name, checkpoint, rounds(), "bfloat16", engine)

    def broken(self) -> tuple[ScenarioResult, ScenarioResult, str]:
        """The engine whose last rounds have faults, the same on the cpu device without them, and
        the checkpoint."""
        _, cpu, checkpoint = self.results(*READ_IN_PLACE[0])
        return self._served[0]["rocm-attn hk broken"], cpu, checkpoint

    def results(self, parent: str, head_size: int) -> Results:
        """On the emulated and on the cpu device, and the checkpoint."""
        emulated, cpu = (served[f"{parent} hk d{head_size}"] for served in self._served)
        return emulated, cpu, self._checkpoints[head_size]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> OnBothDevices:
    return OnBothDevices(tmp_path_factory.mktemp("emulated-rocm"))


@pytest.mark.engine_proof
@pytest.mark.parametrize(("parent", "head_size"), READ_IN_PLACE)
def test_extends(parent: str, head_size: int, engines: OnBothDevices) -> None:
    """Every prefill row is HK's, with the log-probabilities of the cpu device."""
    emulated, cpu, checkpoint = engines.results(parent, head_size)
    for result in (emulated, cpu):
        assert_traffic(result)
        assert_routed(result)
    launched = emulated.rounds[-1].workers[0].launches
    keys = "split" if parent in SPLIT else "paged"
    kernel = serving_few("attention_prefill", dtype="bf16", head_size=head_size, keys=keys)
    assert launched[kernel.name] > 0
    assert_same_numbers(emulated, cpu, checkpoint)


@pytest.mark.engine_proof
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_reading_the_cache_is_seen(fault: str, engines: OnBothDevices) -> None:
    """HK counts the tokens as its own, and they are far from the truth."""
    found, cpu, checkpoint = engines.broken()
    assert_routed(found)
    *healthy, _, _ = found.rounds
    item = found.rounds[len(healthy) + FAULTS.index(fault)]
    assert all(answer.cached_tokens >= 64 for answer in item.answers)
    before = found.rounds[found.rounds.index(item) - 1].workers[0]
    assert item.workers[0].mutated_calls > before.mutated_calls
    stock = error_of(cpu.rounds, checkpoint)
    assert_as_exact(error_of(healthy, checkpoint), stock)
    with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
        assert_as_exact(error_of([item], checkpoint), stock)


@pytest.mark.slow
def test_two_ranks(engines: OnBothDevices, tmp_path: Path) -> None:
    """The heads of vLLM's default backend, split over two processes."""
    scenario = engines.scenario(
        "rocm-attn",
        64,
        tensor_parallel_size=2,
        worker_extension_cls="tests.integration.hk_vllm.rocm.ranks.Rank",
    )
    cores = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}  # or it wants a NUMA node for each rank
    found = serve_on(DEVICES[0], [scenario], tmp_path, **cores)[scenario.name]
    assert len(found.rounds[-1].workers) == 2
    assert_traffic(found)
    assert_routed(found)
    for worker in found.rounds[-1].workers:
        assert sum(worker.launches.values()) > 0
    _, one_rank, checkpoint = engines.results("rocm-attn", 64)
    assert_same_numbers(found, one_rank, checkpoint)
