"""A decoded thread trace of one dispatch, as AMD's decoder writes it for the ATT viewer.

    dispatch = read(Path("ui_output_agent_38430_dispatch_44"))
    dispatch.waves[0].steps["clock"]

Source: the decoder's files as published with ROCm 7.2 (rocprof-trace-decoder): `code.json` has the
listing, `se<engine>_sm<simd>_sl<slot>_wv<number>.json` one wave each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

STEP = np.dtype(
    [("clock", np.int64), ("stall", np.int64), ("clocks", np.int64), ("line", np.int64)]
)
"""One issued instruction: the clock at which its stall began, clocks of the stall, clocks with the
stall, and its line in the listing."""
LISTING = "code.json"
WAVES = "se*_sm*_sl*_wv*.json"
OCCUPANCY = "occupancy.json"
TEXT, SOURCE, PC = 0, 3, 5
"""Columns of a line in `code.json`."""
END = "s_endpgm"
TOGETHER = 24
"""Most clocks between the beginnings of two waves of one workgroup. Other workgroups of a CU begin
100 clocks later at the earliest."""


class DispatchError(ValueError):
    """A folder that holds no decoded dispatch."""


@dataclass(frozen=True)
class Line:
    """One line of the listing: an instruction, or a label."""

    text: str
    pc: int
    """Address in the code object's file, in bytes."""
    source: str

    @property
    def is_label(self) -> bool:
        return self.text.startswith(";")

    @property
    def mnemonic(self) -> str:
        return self.text.split()[0]


@dataclass(frozen=True)
class Wave:
    """One wave of the traced CU, from its first clock to its last."""

    engine: int
    simd: int
    slot: int
    begin: int
    end: int
    steps: NDArray[Any]
    """Issued instructions in order, as `STEP`."""

    @property
    def issues(self) -> NDArray[np.int64]:
        """The clock at which each instruction issued, its stall over."""
        issued: NDArray[np.int64] = self.steps["clock"] + self.steps["stall"]
        return issued


@dataclass(frozen=True)
class Launch:
    """All waves of the traced XCD, and the number of its CUs that ran them."""

    waves: int
    compute_units: int


@dataclass(frozen=True)
class Dispatch:
    """The traced waves of one dispatch, and the listing of its kernel."""

    name: str
    lines: Sequence[Line]
    waves: Sequence[Wave]
    clock_ghz: float
    """The engine's clock while it was traced; 0: the trace does not tell."""
    launch: Launch | None = None
    """The launch as the traced XCD ran it; None: the trace does not tell."""

    @property
    def engines(self) -> list[int]:
        """Shader engines with a traced CU, one CU each."""
        return sorted({wave.engine for wave in self.waves})

    def workgroups(self, engine: int) -> list[list[Wave]]:
        """The workgroups of an engine's traced CU: waves that begin together, in that order."""
        found: list[list[Wave]] = []
        own = (wave for wave in self.waves if wave.engine == engine)
        for wave in sorted(own, key=lambda wave: wave.begin):
            if not found or wave.begin - found[-1][-1].begin > TOGETHER:
                found.append([])
            found[-1].append(wave)
        return found


def read(folder: Path) -> Dispatch:
    """Read a decoded dispatch.

    Raises:
        DispatchError: a file is missing or is not the decoder's, or no wave was traced to its end.
    """
    with _in_words(folder / LISTING):
        lines = [_line(row) for row in _json(folder / LISTING)["code"]]
    waves = []
    for path in sorted(folder.glob(WAVES)):
        with _in_words(path):
            waves += [wave] if (wave := _wave(path, lines)) else []
    if not waves:
        raise DispatchError(f"{folder} has no whole wave ({WAVES})")
    with _in_words(folder / "realtime.json"):
        clock_ghz = _clock_ghz(folder / "realtime.json")
    with _in_words(folder / OCCUPANCY):
        launch = _launch(folder / OCCUPANCY)
    return Dispatch(folder.name, lines, waves, clock_ghz, launch)


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Turns what another form of JSON leads to into a `DispatchError` that names the file."""
    try:
        yield
    except DispatchError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise DispatchError(f"{path} is not a decoder's file: {why}") from None


def _line(row: Sequence[Any]) -> Line:
    return Line(str(row[TEXT]), int(row[PC]), str(row[SOURCE]))


def _wave(path: Path, lines: Sequence[Line]) -> Wave | None:
    """The wave of a file; None if its last instruction was not traced."""
    wave = _json(path)["wave"]
    # the file's second column is the instruction's class, which the listing tells as well
    rows = [(clock, stall, clocks, line) for clock, _, stall, clocks, line in wave["instructions"]]
    steps = np.array(rows, STEP)
    if not len(steps) or lines[steps["line"][-1]].mnemonic != END:
        return None
    engine = int(path.name.split("_")[0].removeprefix("se"))
    return Wave(engine, wave["simd"], wave["slot"], wave["begin"], wave["end"], steps)


def _launch(path: Path) -> Launch | None:
    """The waves that began: rows of [clock, CU, SIMD, slot, begins, dispatch] by shader engine."""
    if not path.is_file():
        return None
    engines = {name: rows for name, rows in _json(path).items() if name.isdigit()}
    units = [(name, row[1]) for name, rows in engines.items() for row in rows if row[4]]
    return Launch(len(units), len(set(units))) if units else None


def _clock_ghz(path: Path) -> float:
    """The engine's clock, from pairs of its own and of the constant clock."""
    if not path.is_file():
        return 0.0
    content = _json(path)
    frequency = content.get("metadata", {}).get("frequency", 0) / 1e9
    for pairs in _series(content):
        (own, real), (last_own, last_real) = pairs[0], pairs[-1]
        if last_real > real:
            return float((last_own - own) / (last_real - real) * frequency)
    return 0.0


def _series(content: dict[str, Any]) -> Iterator[Sequence[tuple[int, int]]]:
    yield from (pairs for name, pairs in content.items() if name != "metadata" and len(pairs) > 1)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise DispatchError(f"{path}: {error.strerror}: not a decoded dispatch") from None
    except ValueError:
        raise DispatchError(f"{path} is no JSON: not a decoded dispatch") from None
