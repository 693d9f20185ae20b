"""What may be outstanding at an instruction, of programs written down word by word."""

from __future__ import annotations

import struct

from hk_backend import _emulator
from tests.kernels.mutants import mutants
from tests.kernels.outstanding import most_outstanding

LOAD = (0xC0020000, 0x00000000)  # s_load_dword s0, s[0:1], 0x0
WAIT = (0xBF8CC07F,)  # s_waitcnt lgkmcnt(0)
WAIT_1 = (0xBF8CC17F,)
BACK_4 = (0xBF84FFFC,)  # s_cbranch_scc0, to three words before
AHEAD_1 = (0xBF850001,)  # s_cbranch_scc1, past the next word
JUMP_2 = (0xBF820002,)  # s_branch, past the next two words
END = (0xBF810000,)


def outstanding(*instructions: tuple[int, ...]) -> list[int | None]:
    """Of scalar loads, at each instruction; None: no path comes there."""
    text = program(*instructions)
    found = most_outstanding(text, "gfx950", 0, len(text))
    places = [pc for pc, _ in _emulator.disassemble(text, "gfx950")]
    return [found[pc]["lgkmcnt"] if pc in found else None for pc in places]


def program(*instructions: tuple[int, ...]) -> bytes:
    words = [word for each in instructions for word in each]
    return struct.pack(f"<{len(words)}I", *words)


def test_a_straight_line() -> None:
    assert outstanding(LOAD, LOAD, WAIT_1, WAIT, END) == [0, 1, 2, 1, 0]


def test_the_larger_of_two_ways() -> None:
    assert outstanding(AHEAD_1, WAIT, LOAD, WAIT, END) == [0, 0, 0, 1, 0]
    assert outstanding(LOAD, AHEAD_1, WAIT, WAIT, END) == [0, 1, 1, 1, 0]


def test_what_a_loop_brings_back() -> None:
    assert outstanding(WAIT_1, LOAD, BACK_4, WAIT, END) == [2, 1, 2, 2, 0]


def test_what_no_way_leads_to() -> None:
    assert outstanding(LOAD, JUMP_2, LOAD, WAIT, END) == [0, 1, None, 1, 0]


def test_only_waits_that_may_wait_have_mutants() -> None:
    text = program(LOAD, WAIT, WAIT, END)
    found = [each.pc for each in mutants(text, "gfx950", 0, len(text))]
    assert set(found) == {8}
