"""Draws faults of Python code: from all that cosmic-ray can make of a room, so many of each.

`python -m tests.mutants.draw` prints nothing; it writes the rooms' files that are missing.

The draw is fixed by the room's name. Code that cannot be wrong is left out: docstrings,
annotations, `from __future__`, and operators in a place without sense, as `|` between types.
"""

from __future__ import annotations

import ast
import difflib
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tests.models import ROOT
from tests.mutants.fault import FOLDER, Fault, StaleFaultError, written
from tests.mutants.rooms import ROOMS, Room

IDENTITY = re.compile(r"_(?!Is)[A-Za-z]+_Is(Not)?$")
"""Operators that compare by identity instead of by value: small numbers and constants do not
differ."""
TRIES = 40
"""Draws for each fault that is wanted: some of what cosmic-ray makes is no fault."""


def draw(room: Room) -> list[Fault]:
    """One fault of each file in turn, until there are as many as the room wants."""
    chosen = random.Random(f"faults of {room.name}")
    files = [path for path in room.files(ROOT) if len(path.read_text().splitlines()) > 15]
    chosen.shuffle(files)
    found: list[Fault] = []
    for turn in range(room.faults * TRIES):
        path = files[turn % len(files)]
        fault = draw_one(room.name, path, chosen)
        if fault and fault.key not in {each.key for each in found}:
            found.append(fault)
        if len(found) == room.faults:
            break
    return sorted(found, key=lambda fault: (fault.file, fault.within, fault.name))


def draw_one(room: str, path: Path, chosen: random.Random) -> Fault | None:
    """A kind of operator is drawn, then one of its places, then a form of it. So operators with
    many places or forms are not drawn more often."""
    text = path.read_text()
    kinds: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
    for operator, occurrence, within in places(text):
        kinds[operator.partition("_")[0]].append((operator, occurrence, within))
    if not kinds:
        return None
    operator, occurrence, within = chosen.choice(kinds[chosen.choice(sorted(kinds))])
    changed = mutate_code(text, get_operator(operator)(), occurrence)
    if changed is None or not is_another(text, changed):
        return None
    name = operator.rpartition("/")[2]
    return anchored(room, name, str(path.relative_to(ROOT)), within, text, changed)


def places(text: str) -> Iterator[tuple[str, int, str]]:
    """Operator, occurrence and definition of all that cosmic-ray can change in functions."""
    tree = get_ast(text)
    nodes = list(ast_nodes(tree))
    for name in operator_names():
        kind = get_operator(name)
        if kind.arguments() or IDENTITY.search(name):
            continue
        occurrence = 0
        for node in nodes:
            for _ in kind().mutation_positions(node):
                if within := definition_of(node):
                    yield name, occurrence, within
                occurrence += 1


def definition_of(node: object) -> str:
    """The dotted name of the function around a node of parso's; empty outside of any."""
    names: list[str] = []
    inside = False
    parent = getattr(node, "parent", None)
    while parent is not None:
        if parent.type in ("funcdef", "classdef"):
            names.append(parent.name.value)
            inside |= parent.type == "funcdef"
        parent = parent.parent
    return ".".join(reversed(names)) if inside else ""


def is_another(text: str, changed: str) -> bool:
    """Whether the change alters code that runs: it parses, and more differs than annotations and
    the `strict=True` of a zip, which is a check of its own."""
    try:
        return ast.dump(bare(changed)) != ast.dump(bare(text))
    except SyntaxError:
        return False


def bare(text: str) -> ast.Module:
    """The tree without what `is_another` does not count."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            node.value = ast.Constant(True)
    return tree


def anchored(room: str, name: str, file: str, within: str, text: str, changed: str) -> Fault | None:
    """The fault by its lines, with as many before them as make them the only ones."""
    before, after = text.split("\n"), changed.split("\n")
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    differ = [block for block in blocks if block[0] != "equal"]
    _, first, _, of_new, _ = differ[0]
    _, _, last, _, to_new = differ[-1]
    for extra in range(4):
        old = "\n".join(before[first - extra : last])
        new = "\n".join(after[of_new - extra : to_new])
        fault = Fault(room, name, file, within, old, new)
        try:
            if old.strip() and "\n\n" not in old and fault.applied(text) == changed:
                return fault
        except StaleFaultError:
            continue
    return None


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for room in ROOMS:
        path = FOLDER / f"{room.name}.txt"
        if room.faults and not path.exists():
            path.write_text("\n\n".join(map(written, draw(room))) + "\n")


if __name__ == "__main__":
    main()
