"""The file of HK_TUNING: what refuses a line, which ones are ignored, what the others decide."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hk_backend.config import ConfigError, read_config
from hk_backend.kernels import tuning
from hk_backend.kernels.catalogue import Family, catalogue
from hk_backend.kernels.gemm_choice import choose, most_sum_bytes
from hk_backend.kernels.gemm_formats import LAYERS, family, format_of
from hk_backend.kernels.gemm_plan import (
    MOST_SPLITS,
    PLANNED,
    Candidate,
    candidates,
    sum_bytes,
    tiles_of,
)
from hk_backend.kernels.tuning import Tuned, Tuning, TuningError, Weight, load, read
from hk_backend.kernels.tuning_fields import FIELDS, MEASURED, MODELLED
from tests.kernels import tuning_lines
from tests.kernels.tuning_lines import UNITS, Line, configured, write

ARCH, N, K = "gfx950", 4096, 8192
KERNELS = catalogue(ARCH).families["gemm"]
FAMILY = family(catalogue(ARCH), LAYERS["bf16"])
WEIGHT = Weight(ARCH, UNITS, format_of(FAMILY[0]), N, K)
WORST = max(candidates(FAMILY, 64, N, K, UNITS), key=lambda found: found.microseconds)
"""What the planner would never choose."""
CHOICE = {"kernel": WORST.entry.name, "splits": WORST.splits}


def line(m: int = 64, n: int = N, k: int = K, **changes: Any) -> Line:
    return tuning_lines.line(FAMILY, m, n, k, **{**CHOICE, **changes})


def measured(m: int = 64, n: int = N, **changes: Any) -> Line:
    return tuning_lines.measured(FAMILY, m, n, K, **{**CHOICE, **changes})


def without(name: str) -> Line:
    return {each: value for each, value in line().items() if each != name}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "times.jsonl"
    load.cache_clear()


def test_what_is_written_is_read(path: Path) -> None:
    stock = {"stock": "torch", "stock_microseconds": 3}
    rows = [line(), measured(), measured(m=128, **stock), line(sha256="0" * 64)]
    found = list(read(write(path, *rows)))
    assert [tuning.as_fields(each) for each in found] == rows
    assert found[2].stock_microseconds == 3


OTHER = next(entry for entry in KERNELS if format_of(entry) != WEIGHT.format)
BAD: list[tuple[Line | bytes, str]] = [
    *((without(name), f"{name} is missing; valid: ") for name in FIELDS if name in line()),
    (line(arch="gfx90a"), "arch = \"gfx90a\"; valid: 'gfx950'"),
    *(
        (line() | {name: 0}, f"{name} = 0; valid: a whole number, 1 to ")
        for name in ("m", "n", "k")
    ),
    (line() | {"m": 1.0}, "m = 1.0; valid: a whole number"),
    (line() | {"m": True}, "m = true; valid: a whole number"),
    (line() | {"m": "1"}, 'm = "1"; valid: a whole number'),
    (line(compute_units=0), "compute_units = 0; valid: a whole number"),
    (line(activations="int8"), "activations = \"int8\"; valid: 'bf16' or "),
    (line(weights=7), "weights = 7; valid: 'bf16' or "),
    (line(scales=[]), "scales = []; valid: 'vectors' or "),
    (line(kernel=""), 'kernel = ""; valid: a name'),
    (line(splits=MOST_SPLITS + 1), f"splits = {MOST_SPLITS + 1}; valid: a whole number, 1 to "),
    (line(k=64, splits=2), "splits = 2; valid, with these sizes: 1"),
    (line(microseconds=0), "microseconds = 0; valid: microseconds, a finite number above 0"),
    (line(microseconds=-1.5), "microseconds = -1.5; valid: "),
    (line(microseconds="fast"), 'microseconds = "fast"; valid: '),
    (line(microseconds=float("nan")), "microseconds = NaN; valid: "),
    (line(microseconds=float("inf")), "microseconds = Infinity; valid: "),
    (line(source="guessed"), "source = \"guessed\"; valid: 'measured' or 'modelled'"),
    (line(source=MEASURED), "device; valid: a name where source is 'measured', else none"),
    (line(device="MI355X"), "device; valid: a name where source is 'measured', else none"),
    (line(sha256="0" * 63), "sha256 = "),
    (line(sha256="G" * 64), "sha256 = "),
    (line(tile=64), f"tile is no field; valid: {', '.join(FIELDS)}"),
    (measured(stock="torch"), "stock and stock_microseconds; valid: both"),
    (measured(stock_microseconds=1), "stock and stock_microseconds; valid: both"),
    (line(stock="torch", stock_microseconds=1), "stock and stock_microseconds; valid: both"),
    (measured(stock="torch", stock_microseconds=0), "stock_microseconds = 0; valid: "),
    (line(kernel=OTHER.name, sha256=OTHER.sha256), f"kernel = '{OTHER.name}' is of "),
    (b"", "not JSON: "),
    (b"{", "not JSON: "),
    (b"\xff{}", "not JSON: "),
    (b"[1]", "'[1]'; valid: one JSON object"),
    (b'{"m": 1, "m": 2}', "m is there twice; valid: once"),
    (json.dumps(line()).encode()[:-20], "not JSON: "),
]


@pytest.mark.parametrize(("bad", "said"), BAD)
def test_a_bad_line_is_refused_by_its_number(
    bad: Line | bytes, said: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever reads the file, and before anything runs: as part of the environment."""
    write(path, line(m=1, splits=1), bad, line(m=4))
    with pytest.raises(TuningError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}, line 2: {said}")
    monkeypatch.setenv("HK_TUNING", str(path))
    with pytest.raises(ConfigError) as refused:
        read_config()
    assert str(refused.value) == f"HK_TUNING={str(path)!r} is not valid: {caught.value}"


def test_a_launch_is_listed_once(path: Path) -> None:
    with pytest.raises(TuningError, match=r"line 3: the same launch as line 1; valid: each once"):
        load(write(path, line(), line(m=65), line(microseconds=3)))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=r"none.jsonl: No such file or directory$"):
        load(tmp_path / "none.jsonl")


def test_lines_of_other_kernels_are_ignored_and_counted(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [line(sha256="0" * 64), line(kernel="gemm_of_old"), line(m=128)]
    with caplog.at_level(logging.WARNING):
        found = load(write(path, *rows))
    assert (found.ignored, found.at(WEIGHT, 64)) == (2, Tuned(**line(m=128)))
    (said,) = caplog.messages
    assert "2 lines are of another build of the kernels and ignored" in said


rows_of = st.lists(
    st.tuples(st.integers(1, 300), st.sampled_from((MEASURED, MODELLED))), unique=True, min_size=1
)


@given(rows=rows_of, m=st.integers(1, 700))
def test_which_line_decides_between_listed_rows(rows: list[tuple[int, str]], m: int) -> None:
    """Its own M and fewer, down to half; the fewest rows, then what was measured."""
    lines = [
        Tuned(**(measured(m=rows) if source == MEASURED else line(m=rows))) for rows, source in rows
    ]
    tuning = Tuning(lines)
    for source in ("", MEASURED, MODELLED):
        found = tuning.at(WEIGHT, m, source)
        holding = [each for each in lines if m <= each.m <= 2 * m and source in ("", each.source)]
        if found is None:
            assert not holding
        else:
            assert found in holding
            assert found.m == min(each.m for each in holding)
            same = {each.source for each in holding if each.m == found.m}
            assert found.source == (MEASURED if MEASURED in same else MODELLED)


def test_a_line_is_of_its_own_weight_only(path: Path) -> None:
    found = load(write(path, line()))
    assert found.at(WEIGHT, 64)
    for other in (
        WEIGHT._replace(arch="gfx942"),
        WEIGHT._replace(compute_units=32),
        WEIGHT._replace(format=format_of(OTHER)),
        WEIGHT._replace(n=N + 1),
        WEIGHT._replace(k=K + 1),
    ):
        assert found.at(other, 64) is None


def test_the_file_decides_before_the_planner(path: Path) -> None:
    def chosen(m: int, family: Family = FAMILY) -> tuple[str, int, str]:
        found = choose(family, m, N, K, UNITS, tuning)
        return found.entry.name, found.splits, found.source

    def planned(m: int, family: Family = FAMILY) -> tuple[str, int, str]:
        found = min(candidates(family, m, N, K, UNITS), key=lambda each: each.microseconds)
        return found.entry.name, found.splits, PLANNED

    tuned = (WORST.entry.name, WORST.splits, MODELLED)
    left = tuple(entry for entry in FAMILY if entry is not WORST.entry)
    assert planned(64) != tuned
    with configured(write(path, line())):
        tuning = read_config().tuning
    assert [chosen(m) for m in (31, 32, 64, 65)] == [planned(31), tuned, tuned, planned(65)]
    assert choose(FAMILY, 64, N, K, UNITS, tuning).microseconds == 12.5
    assert chosen(64, left) == planned(64, left), "a kernel that failed here does not serve"


def test_there_is_room_for_the_sums_of_every_line(path: Path) -> None:
    """Of rows that nobody would think of, too: a launch in a graph cannot ask for more."""
    m, n = 1000, 1024

    def room(of: Candidate) -> int:
        return sum_bytes(of.entry, tiles_of(of.entry, m, n), of.splits)

    most = max(candidates(FAMILY, m, n, K, UNITS), key=room)
    row = measured(m=m, n=n, kernel=most.entry.name, splits=most.splits)
    needed = most_sum_bytes(FAMILY, n, K, UNITS, load(write(path, row)))
    assert needed >= room(most) > most_sum_bytes(FAMILY, n, K, UNITS, Tuning())
