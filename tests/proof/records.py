"""Records of proof: what was checked, with what, and the result.

They lie in `tests/proof/records`: a text file for each source of kernels and for each engine, a
line for each record, sorted, so that a diff reads. `make prove` writes them, and nobody else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

FOLDER = Path(__file__).parent / "records"
TITLE = """# What `make prove` has checked; it alone writes this file.
# {columns}
"""


class RecordError(ValueError):
    """A line that is no valid record."""


@dataclass(frozen=True, order=True)
class Key:
    """A check, as file and function, and the digest of the kernel or the case that it is about."""

    check: str
    subject: str


@dataclass(frozen=True)
class Record:
    """One check of one kernel, or one case of an engine, that passed.

    `subject`, `test`, `runtime`: digests of what was checked, of the test, and of the sources that
    ran it. `cases`: launches of the kernel, or engines that the case read. `worst`: the largest
    error in units of its bound. `name`: a kernel with the subject's digest, or the engine's case.
    """

    check: str
    subject: str
    test: str
    runtime: str
    cases: int
    worst: float
    seconds: float
    date: str
    processor: str
    name: str

    @property
    def key(self) -> Key:
        return Key(self.check, self.subject)

    def line(self) -> str:
        """The record as a line of its file."""
        worst, seconds = f"{self.worst:.3g}", f"{self.seconds:.1f}"
        values = {**vars(self), "worst": worst, "seconds": seconds}
        return " ".join(str(values[field.name]).replace(" ", "_") for field in fields(self))

    @classmethod
    def of(cls, line: str) -> Record:
        """The record on a line. Raises `RecordError`, which quotes the line."""
        kinds = {"cases": int, "worst": float, "seconds": float}
        try:
            words = zip(fields(cls), line.split(), strict=True)
            record = cls(**{f.name: kinds.get(f.name, str)(word) for f, word in words})
        except ValueError:
            wanted = " ".join(field.name for field in fields(cls))
            raise RecordError(f"not a record ({wanted}): {line!r}") from None
        if record.cases < 0 or not 0 <= record.worst <= 1 or not math.isfinite(record.seconds):
            raise RecordError(f"a record of something that did not pass: {line!r}")
        return record


def read(folder: Path = FOLDER) -> dict[Key, Record]:
    """Every record in `folder`. Raises `RecordError` for a line that is none, or a second one."""
    found: dict[Key, Record] = {}
    for path in sorted(folder.glob("*.txt")):
        for key, record in read_file(path).items():
            if key in found:
                raise RecordError(f"{path.name} has a second record of {key.check} {record.name}")
            found[key] = record
    return found


def read_file(path: Path) -> dict[Key, Record]:
    """The records of one file. Raises `RecordError`."""
    found: dict[Key, Record] = {}
    for record in _lines(path.read_text()):
        if record.key in found:
            raise RecordError(f"{path.name} has two records of {record.check} {record.name}")
        found[record.key] = record
    return found


def write(source: str, records: Iterable[Record], folder: Path = FOLDER) -> None:
    """Write the whole file of one source of kernels, or of one engine."""
    folder.mkdir(exist_ok=True)
    columns = " ".join(field.name for field in fields(Record))
    lines = [record.line() for record in sorted(records, key=astuple)]
    text = TITLE.format(columns=columns) + "".join(f"{line}\n" for line in lines)
    path = folder / f"{source}.txt"
    unfinished = path.with_suffix(".new")
    unfinished.write_text(text)
    unfinished.replace(path)  # whole, or as it was


def keep(
    wanted: Container[Key], owns: Callable[[str], bool] = lambda _: True, folder: Path = FOLDER
) -> None:
    """Drop all other records from the files whose name `owns` answers for."""
    for path in sorted(filter(lambda path: owns(path.stem), folder.glob("*.txt"))):
        found = read_file(path)
        kept = [record for key, record in found.items() if key in wanted]
        if not kept:
            path.unlink()
        elif len(kept) < len(found):
            write(path.stem, kept, folder)


def _lines(text: str) -> Iterator[Record]:
    for line in text.splitlines():
        if line and not line.startswith("#"):
            yield Record.of(line)
