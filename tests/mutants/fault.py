"""A fault: one small change of the product's source that its tests should notice.

A file of `faults/` holds the faults of one room, each as a paragraph:

    `hk_backend/kernels/gemm_plan.py: tiles_of`    The file, and the definition.
    `the last workgroup is left out`               The fault, or the operator that made it.
    `-    return count`                            Text before, once in the definition.
    `+    return count - 1`                        Text after.
    `= equivalent: no caller asks for it`          Optional: why no test can tell.

A kernel's or another C++ source's fault has no definition. A GPU kernel's names the source that is
compiled with it in a line such as `* csrc/kernels/gemm.hip`.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("faults")


class StaleFaultError(ValueError):
    """The text that a fault changes does not occur once where it did."""


@dataclass(frozen=True)
class Fault:
    """A change of one place. `room`: the name of its file of faults; `source`: of a GPU kernel."""

    room: str
    name: str
    file: str
    within: str
    old: str
    new: str
    source: str = ""
    equivalent: str = ""

    @property
    def key(self) -> str:
        """Six hexadecimal digits that name it in the results, whatever stands around it."""
        parts = "\0".join((self.file, self.within, self.old, self.new))
        return hashlib.sha256(parts.encode()).hexdigest()[:6]

    def span(self, text: str) -> tuple[int, int]:
        """Place of `old` in the text of the file. Raises `StaleFaultError`."""
        begin, end = definition(text, self.within) if self.within else (0, len(text))
        if (times := text.count(self.old, begin, end)) != 1:
            place = f" in {self.within}" if self.within else ""
            raise StaleFaultError(f"{self.old.strip()!r} occurs {times} times{place}")
        at = text.index(self.old, begin, end)
        return at, at + len(self.old)

    def applied(self, text: str) -> str:
        """The text of the file with the fault. Raises `StaleFaultError`."""
        begin, end = self.span(text)
        return text[:begin] + self.new + text[end:]


def definition(text: str, name: str) -> tuple[int, int]:
    """The characters of a Python definition, `Class.method` for one in another, from its first
    decorator on. Raises `StaleFaultError` if there is none."""
    body: list[ast.stmt] = ast.parse(text).body
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    node: ast.stmt | None = None
    for part in name.split("."):
        node = next((each for each in walk(body) if getattr(each, "name", None) == part), None)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            raise StaleFaultError(f"there is no {name}")
        body = node.body
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    first = min(node.lineno, *(each.lineno for each in node.decorator_list), node.lineno)
    return starts[first - 1], starts[node.end_lineno or first]


def walk(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, and those in their branches, but not in their functions and classes."""
    for each in body:
        yield each
        if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for branch in ("body", "orelse", "finalbody"):
                yield from walk(getattr(each, branch, ()))


def read(folder: Path = FOLDER) -> list[Fault]:
    """Read all faults, by room and in the order of its file. Raises `ValueError` for a bad
    paragraph."""
    found = []
    for path in sorted(folder.glob("*.txt")):
        paragraphs = path.read_text().strip("\n").split("\n\n")
        found += [parse(path.stem, each) for each in paragraphs if not each.startswith("#")]
    keys = [fault.key for fault in found]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise ValueError(f"faults that are there twice: {', '.join(sorted(twice))}")
    return found


def parse(room: str, paragraph: str) -> Fault:
    """Parse one paragraph. Raises `ValueError` if it is not as the module says."""
    place, name, *rest = paragraph.split("\n")
    file, _, within = place.partition(": ")
    texts: dict[str, list[str]] = {"-": [], "+": [], "*": [], "=": []}
    for line in rest:
        if line[:1] not in texts:
            raise ValueError(f"{room}: {place}: a line that begins with {line[:1]!r}")
        texts[line[0]].append(line[1:])
    old, new, source, remark = ("\n".join(lines) for lines in texts.values())
    if not old:
        raise ValueError(f"{room}: {place}: {name} says not what it changes")
    equivalent = remark.strip().removeprefix("equivalent: ")
    return Fault(room, name, file, within, old, new, source.strip(), equivalent)


def written(fault: Fault) -> str:
    """The paragraph of a fault."""
    lines = [f"{fault.file}: {fault.within}" if fault.within else fault.file, fault.name]
    lines += [f"-{line}" for line in fault.old.split("\n")]
    lines += [f"+{line}" for line in fault.new.split("\n") if fault.new]
    lines += [f"* {fault.source}"] if fault.source else []
    lines += [f"= equivalent: {fault.equivalent}"] if fault.equivalent else []
    return "\n".join(lines)
