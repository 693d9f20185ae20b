"""How many operations of a counter any path may have left outstanding at an instruction, by data
flow over the machine words.

A wait that allows as many never waits, and no test could notice that it is missing: the compiler
leaves some from before it had placed the blocks, and not all kernels need all waits of a template.
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
"""By counter: what is outstanding until it is waited for (CDNA3 ISA, 4.4)."""
BRANCH = re.compile(r"s_(c?)branch\S* (\d+)")
ENDS = ("s_endpgm", "s_setpc")
Code = Sequence[tuple[int, str]]


def most_outstanding(text: bytes, arch: str, begin: int, end: int) -> Mapping[int, dict[str, int]]:
    """By byte offset of each instruction from `begin` to `end` of a .text section that a path may
    reach: how many operations of each counter may be outstanding before it."""
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
    """Where each instruction may go on."""
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
