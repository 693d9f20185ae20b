"""Each executed opcode is stated by a test.

A test states an opcode if it is among those that are generated from the opcode tables, or if its
name stands in the test's text: written out, or as a format string that it fits.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from hk_backend import _emulator
from tests.emulator import (
    test_atomics,
    test_loads_and_stores,
    test_semantics_math,
    test_semantics_matrix,
    test_semantics_pcode,
)

MODULES = (
    *("test_semantics_*.py", "test_buffers.py", "test_memory.py"),
    *("test_vgpr_indexing.py", "test_machine.py", "test_control.py"),
)
GENERATED = {
    *test_semantics_pcode.COMPARED,
    *test_atomics.MNEMONICS,
    *test_loads_and_stores.MNEMONICS,
    *(f"v_{name}_{kind}" for name in test_semantics_math.FUNCTIONS for kind in ("f16", "f32")),
    *(name for name, _ in test_semantics_matrix.ALL_INSTRUCTIONS),
    *(f"v_mfma_f64_{shape}_f64" for shape in ("16x16x4", "4x4x4_4b")),
    *(f"v_mfma_scale_f32_{shape}_f8f6f4" for shape in ("16x16x128", "32x32x64")),
}
WORD = re.compile(r"\b(?:v|s|ds|buffer|global)_\w+")


def executed() -> set[str]:
    tables = [_emulator.opcodes(arch) for arch in ("gfx942", "gfx950")]
    return {m for table in tables for _, _, m, is_executed in table if is_executed}


def names_in(text: str) -> set[str]:
    """Of strings, as patterns: what a format string leaves open is any part of a name."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = [
                str(part.value) if isinstance(part, ast.Constant) else "__ANY__"
                for part in node.values
            ]
            found |= set(WORD.findall("".join(parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(WORD.findall(node.value))
    return {name.replace("__ANY__", "[a-z0-9]+") for name in found}


def stated() -> re.Pattern[str]:
    paths = [path for module in MODULES for path in Path(__file__).parent.glob(module)]
    names = {name for path in paths for name in names_in(path.read_text())}
    # an open operation would be any instruction
    names = {name for name in names if not re.match(r"[a-z]+_\[", name)}
    return re.compile("|".join(sorted(names | GENERATED)))


def test_each_opcode_is_stated() -> None:
    known = stated()
    assert sorted(name for name in executed() if not known.fullmatch(name)) == []
