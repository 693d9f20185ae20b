"""Counts of the operations that may be outstanding at an instruction, on any path to it.

They follow from the data flow over the machine words. A wait that allows as many never waits, and
no test could notice its absence. The compiler leaves some such waits from before it placed the
blocks, and not all kernels need all waits of a template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from hk_backend import _emulator

LEAVES = {
    "vmcnt": re.compile(r"(buffer|global|flat|scratch)_"),
    "lgkmcnt": re.compile(r"(s_load|s_buffer_load|s_store|s_mem|s_dcache|ds_|flat_)"),
}
"""Instructions that leave something outstanding, by the counter that waits for it (CDNA3 ISA,
4.4)."""
BRANCH = re.compile(r"s_(c?)branch\S* (\d+)")
ENDS = ("s_endpgm", "s_setpc")
Code = Sequence[tuple[int, str]]


def most_outstanding(text: bytes, arch: str, begin: int, end: int) -> Mapping[int, dict[str, int]]:
    """The most operations of each counter that may be outstanding before an instruction.

    Keys are byte offsets, from `begin` to `end` of a .text section, of the instructions that a path
    may reach.
    """
    listed = _emulator.disassemble(text[begin:end], arch)
    code = [(begin + place, instruction) for place, instruction in listed]
    following = _following(code)
    instructions = dict(code)
    found: dict[int, dict[str, int]] = {code[0][0]: dict.fromkeys(LEAVES, 0)}
    work = [code[0][0]]
    while work:
        pc = work.pop()
        left = _after(instructions[pc], found[pc])
        for successor in following[pc]:
            known = found.get(successor, dict.fromkeys(LEAVES, -1))
            joined = {name: max(known[name], left[name]) for name in LEAVES}
            if joined != known:
                found[successor] = joined
                work.append(successor)
    return found


def _following(code: Code) -> dict[int, list[int]]:
    """The instructions that may follow each instruction, by byte offset."""
    found = {}
    for (pc, instruction), (successor, _) in pairwise([*code, (-1, "")]):
        branch = BRANCH.match(instruction)
        on = [] if instruction.startswith(ENDS) or successor < 0 else [successor]
        if branch:
            words = int(branch[2])
            on = on if branch[1] else []
            on.append(pc + 4 + 4 * (words - (words >> 15 << 16)))
        found[pc] = on
    return found


def _after(instruction: str, before: dict[str, int]) -> dict[str, int]:
    left = {}
    for name, leaves in LEAVES.items():
        waited = re.search(rf"{name}\((\d+)\)", instruction)
        count = before[name] + bool(leaves.match(instruction))
        left[name] = min(count, int(waited[1]) if waited else 64)
    return left
