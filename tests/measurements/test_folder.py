"""The folder of measurements: files that are kept, ignored and merged, and launches that decide."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hk_backend.config import get_config
from hk_backend.kernels.catalogue import Family, catalogue
from hk_backend.kernels.gemm_operands import LAYERS, family, operands_of
from hk_backend.kernels.gemm_plan import PLANNED, Candidate, candidates, sum_bytes, tiles_of
from hk_backend.measurements import folder
from hk_backend.measurements.launches import Launches, Weight, timed_here, timed_on
from hk_backend.measurements.machine import build_of, this_machine
from hk_backend.terms.measurements import (
    MEASURED,
    MODELLED,
    Machine,
    MeasuredLaunch,
    MeasuredLayer,
    Measurements,
    Times,
)
from tests.forked import Programs
from tests.measurements import launches
from tests.measurements.launches import EMULATED, UNITS, timed

HERE = Machine(processor="CPU (R) 9000", torch="2.9", hk_backend="1.0", build="abc", threads=4)


def layer(name: str, ours: float = 1.0) -> MeasuredLayer:
    """A measured layer that differs from others by its name."""
    return MeasuredLayer(
        operator="linear",
        engine="vLLM",
        engine_version="1.0",
        device="cpu:avx2",
        layer=name,
        theirs="theirs",
        times=(Times(rows=1, ours=ours, theirs=2.0),),
    )


def of(*layers: MeasuredLayer, machine: Machine = HERE) -> Measurements:
    return Measurements(machine=machine, layers=layers)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own, which does not exist yet."""
    monkeypatch.setenv("HK_CACHE_DIR", str(tmp_path / "a" / "b"))
    get_config.cache_clear()
    folder._say_once.cache_clear()
    yield tmp_path / "a" / "b"
    get_config.cache_clear()


def test_what_is_added_is_read_and_the_folder_is_made(
    kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "hk_backend")
    assert folder.read(HERE) == of()
    assert not kept.exists(), "reading makes nothing"
    folder.add(of(layer("a")))
    folder.add(of(layer("b")))
    assert folder.read(HERE) == of(layer("a"), layer("b"))
    folder.add(of(layer("a", ours=3.0)))
    assert folder.read(HERE) == of(layer("a", ours=3.0), layer("b"))
    assert [path.suffix for path in sorted(kept.iterdir())] == [".json", ".lock"]
    assert not caplog.messages


def test_machines_have_files_of_their_own() -> None:
    others = [
        HERE.model_copy(update=update)
        for update in (
            {"processor": "CPU 9001"},
            {"torch": "2.10"},
            {"hk_backend": "1.1"},
            {"build": "def"},
            {"threads": 8},
            {"limits": ("ONEDNN_MAX_CPU_ISA=AVX2",)},
        )
    ]
    folder.add(of(layer("a")))
    for other in others:
        assert folder.read(other) == of(machine=other)
        folder.add(of(layer("b"), machine=other))
    assert folder.read(HERE) == of(layer("a"))
    assert len(list(folder.every())) == len(others) + 1


DAMAGE = {
    "not JSON": lambda text: "times",
    "empty": lambda text: "",
    "truncated": lambda text: text[: len(text) // 2],
    "a list": lambda text: f"[{text}]",
    "another format": lambda text: text.replace('"format": 1', '"format": 2'),
    "an unknown field": lambda text: text.replace('"format": 1', '"format": 1, "x": 1'),
    "a negative time": lambda text: text.replace('"ours": 1.0', '"ours": -1.0'),
    "a time that is text": lambda text: text.replace('"ours": 1.0', '"ours": "1.0"'),
    "an infinite time": lambda text: text.replace('"ours": 1.0', '"ours": Infinity'),
    "another machine's": lambda text: text.replace("9000", "9001"),
    "not UTF-8": lambda text: text.encode("utf-16"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_file_that_is_not_one_is_ignored_with_one_line_and_replaced(
    damage, caplog: pytest.LogCaptureFixture
) -> None:
    folder.add(of(layer("a")))
    path = folder.path_of(HERE)
    damaged = damage(path.read_text())
    assert damaged != path.read_text()
    path.write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
    assert folder.read(HERE) == of()
    assert folder.read(HERE) == of()
    assert len(caplog.messages) == 1
    assert str(path) in caplog.text
    assert "\n" not in caplog.messages[0]
    folder.add(of(layer("b")))
    assert folder.read(HERE) == of(layer("b"))


@pytest.mark.parametrize("what", ["a file where the folder is to be", "a folder under a file"])
def test_a_folder_that_cannot_be_written_is_one_line(
    what: str, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file in the way stands for missing permissions, which do not bind a superuser."""
    blocking = kept if what.startswith("a file") else kept.parent
    blocking.parent.mkdir(parents=True, exist_ok=True)
    blocking.write_text("")
    folder.add(of(layer("a")))
    folder.add(of(layer("a")))
    assert folder.read(HERE) == of()
    assert len(caplog.messages) == 1
    assert "cannot be kept" in caplog.text


def test_a_lock_that_another_process_holds_is_waited_for_and_then_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(folder, "LOCK_SECONDS", 0)
    folder.add(of(layer("a")))
    with folder.FileLock(folder.path_of(HERE).with_suffix(".lock")):
        folder.add(of(layer("b")))
    assert folder.read(HERE) == of(layer("a"))
    assert "cannot be kept" in caplog.text


WRITER = """
import sys
from tests.measurements.test_folder import folder, layer, of
for number in range(25):
    folder.add(of(layer(f"{sys.argv[1]} {number}")))
"""


def test_two_processes_lose_nothing_of_each_other(programs: Programs) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(programs.check, WRITER), ("one", "two")))
    names = {each.layer for each in folder.read(HERE).layers}
    assert names == {f"{name} {number}" for name in ("one", "two") for number in range(25)}


def test_this_machine_names_its_threads_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    for name in ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    before = this_machine("cpu:avx2")
    assert before.threads == torch.get_num_threads()
    assert before.torch == torch.__version__
    assert before.limits == ()
    assert before.build == build_of("_cpu") != build_of("_hip")
    assert build_of("_no_such_extension") == "none"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert this_machine("cpu:avx2").limits == ("ONEDNN_MAX_CPU_ISA=AVX2",)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert this_machine("cpu:avx2").threads == 77


ARCH, N, K = "gfx950", 4096, 8192
FAMILY = family(catalogue(ARCH), LAYERS["bf16"])
WEIGHT = Weight(ARCH, UNITS, operands_of(FAMILY[0]), N, K)
WORST = max(candidates(FAMILY, 64, N, K, UNITS), key=lambda found: found.microseconds)
"""The launch that the planner would never choose."""
OTHER = next(e for e in catalogue(ARCH).families["gemm"] if operands_of(e) != WEIGHT.format)


def launch(m: int = 64, n: int = N, k: int = K, **changes: Any) -> MeasuredLaunch:
    of_worst = {"kernel": WORST.entry.name, "splits": WORST.splits}
    return launches.launch(FAMILY, m, n, k, **{**of_worst, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "0" * 64},
        {"kernel": "gemm_of_old"},
        {"kernel": OTHER.name, "sha256": OTHER.sha256},
        {"k": 64, "splits": 2},
        {"arch": "gfx90a"},
    ],
)
def test_launches_of_other_kernels_are_ignored_and_counted(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with timed(launch(**changes), launch(m=128)), caplog.at_level(logging.WARNING):
        found = timed_on(EMULATED)
        assert timed_on(EMULATED) is found
    assert (found.ignored, found.at(WEIGHT, 64), found.at(WEIGHT, 128)) == (
        1,
        launch(m=128),
        launch(m=128),
    )
    (said,) = caplog.messages
    assert "1 timed launches are of another build of the kernels and ignored" in said


rows_of = st.lists(
    st.tuples(st.integers(1, 300), st.sampled_from((MEASURED, MODELLED))), unique=True, min_size=1
)


@given(rows=rows_of, m=st.integers(1, 700))
@settings(max_examples=40)
def test_which_launch_decides_between_listed_rows(rows: list[tuple[int, str]], m: int) -> None:
    """A launch holds for its M and fewer, down to half; the fewest rows decide, then the source."""
    lines = [launch(m=rows, source=source) for rows, source in rows]
    found = Launches(lines).at(WEIGHT, m)
    holding = [each for each in lines if m <= each.m <= 2 * m]
    if found is None:
        assert not holding
    else:
        assert found in holding
        assert found.m == min(each.m for each in holding)
        same = {each.source for each in holding if each.m == found.m}
        assert found.source == (MEASURED if MEASURED in same else MODELLED)


def test_a_launch_is_of_its_own_weight_only() -> None:
    found = Launches([launch()])
    assert found.at(WEIGHT, 64)
    for other in (
        WEIGHT._replace(arch="gfx942"),
        WEIGHT._replace(compute_units=32),
        WEIGHT._replace(format=operands_of(OTHER)),
        WEIGHT._replace(n=N + 1),
        WEIGHT._replace(k=K + 1),
    ):
        assert found.at(other, 64) is None


def test_a_timed_launch_decides_before_the_planner() -> None:
    def chosen(m: int, family: Family = FAMILY) -> tuple[str, int, str]:
        found = here.choose(family, m, N, K, UNITS)
        return found.entry.name, found.splits, found.source

    def planned(m: int, family: Family = FAMILY) -> tuple[str, int, str]:
        found = min(candidates(family, m, N, K, UNITS), key=lambda each: each.microseconds)
        return found.entry.name, found.splits, PLANNED

    tuned = (WORST.entry.name, WORST.splits, MODELLED)
    left = tuple(entry for entry in FAMILY if entry is not WORST.entry)
    assert planned(64) != tuned
    with timed(launch(), HK_DEVICE=EMULATED):
        here = timed_here(ARCH)
    assert [chosen(m) for m in (31, 32, 64, 65)] == [planned(31), tuned, tuned, planned(65)]
    assert here.choose(FAMILY, 64, N, K, UNITS).microseconds == 12.5
    assert chosen(64, left) == planned(64, left), "a kernel that failed here does not serve"


def test_launches_of_the_file_that_the_user_names_come_first(tmp_path: Path) -> None:
    with timed(launch(microseconds=1.0)) as kept:
        (path,) = kept.glob("*.json")
        named = tmp_path / "named.json"
        named.write_text(path.read_text())
    with timed(launch(microseconds=2.0), launch(m=128), HK_EVIDENCE=str(named)):
        found = timed_on(EMULATED)
    first, second = found.at(WEIGHT, 64), found.at(WEIGHT, 128)
    assert first is not None
    assert second is not None
    assert (first.microseconds, second.m) == (1.0, 128)


def test_there_is_room_for_the_sums_of_every_launch() -> None:
    """Odd numbers of rows count, too: a launch in a graph cannot ask for more."""
    m, n = 1000, 1024

    def room(of: Candidate) -> int:
        return sum_bytes(of.entry, tiles_of(of.entry, m, n), of.splits)

    most = max(candidates(FAMILY, m, n, K, UNITS), key=room)
    line = launch(m=m, n=n, kernel=most.entry.name, splits=most.splits)
    needed = Launches([line]).most_sum_bytes(FAMILY, n, K, UNITS)
    assert needed >= room(most) > Launches().most_sum_bytes(FAMILY, n, K, UNITS)
