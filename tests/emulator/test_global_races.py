"""Races of workgroups on single bytes: which accesses conflict, and who is named.

Accesses of whole dwords and of parts of dwords are tracked by different cells, and many lanes at
once; the model here knows only bytes. Workgroups run one after the other, in their order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from hk_backend import _emulator
from tests.emulator.assembly import checks, run

BYTES = {"ubyte": 1, "ushort": 2, "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}
SUFFIX = {"ubyte": "byte", "ushort": "short"}
"""Names of stores where they differ from the loads'."""
SIZE = 64 * 16 + 32
ALL = (1 << 64) - 1


@dataclass(frozen=True)
class Access:
    """An access of one workgroup: lane i to the bytes from `offset` + i * `stride` on."""

    workgroup: int
    write: bool
    kind: str
    offset: int
    stride: int
    lanes: int = ALL

    def places(self) -> list[tuple[int, int]]:
        """The lanes, and the first byte of each."""
        return [(i, self.offset + i * self.stride) for i in range(64) if self.lanes >> i & 1]

    def code(self, number: int) -> str:
        name = SUFFIX.get(self.kind, self.kind)
        move = f"global_store_{name} v1, v[4:7], s[6:7]" if self.write else (
            f"global_load_{self.kind} v[8:11], v1, s[6:7]"
        )  # fmt: skip
        registers = max(BYTES[self.kind] // 4, 1)
        for first in (4, 8):
            last = f"v[{first}:{first + registers - 1}]" if registers > 1 else f"v{first}"
            move = move.replace(f"v[{first}:{first + 3}]", last)
        return f"""
          s_cmp_lg_u32 s12, {self.workgroup}
          s_cbranch_scc1 skip{number}
          v_mul_u32_u24 v1, {self.stride}, v0
          v_add_u32 v1, {self.offset}, v1
          s_mov_b32 exec_lo, {self.lanes & 0xFFFFFFFF:#x}
          s_mov_b32 exec_hi, {self.lanes >> 32:#x}
          {move}
          s_waitcnt vmcnt(0)
          s_mov_b64 exec, -1
          skip{number}:
        """


def execute(accesses: list[Access], begin: int = 0) -> _emulator.Report:
    """Runs the accesses on memory that begins `begin` bytes after a multiple of 16."""
    moves = "".join(f"v_mov_b32 v{i}, 0\n" for i in range(4, 12))
    body = "s_mov_b32 s12, s2\n" + moves + "".join(a.code(i) for i, a in enumerate(accesses))
    room = np.zeros(SIZE + 32, np.uint8)
    begin += -room.ctypes.data % 16
    grid = 1 + max(access.workgroup for access in accesses)
    return run(body, None, room[begin : begin + SIZE], grid=grid, launch={"max_findings": 99})


def expected(accesses: list[Access]) -> list[tuple[int, int, bool, int]]:
    """The finding of each access that conflicts: workgroup, lane, whether it writes, the other."""
    written: dict[int, int] = {}
    read: dict[int, tuple[int, bool]] = {}
    found = []
    for a in sorted(accesses, key=lambda access: access.workgroup):
        own, conflicts = a.workgroup, []
        places = [(lane, range(at, at + BYTES[a.kind])) for lane, at in a.places()]
        for lane, place in places:  # first what an access notes: who wrote before
            for byte in place if a.write else ():
                if written.get(byte, own) != own:
                    conflicts.append((lane, byte, written[byte]))
                written[byte] = own
        if not a.write:
            for byte in {byte for _, place in places for byte in place}:
                last, _ = read.get(byte, (own, False))
                if last != own or byte not in read:
                    read[byte] = own, last != own
        # then what it sees once it has noted
        later = []
        for lane, place in places:
            for byte in place:
                other = own
                if written.get(byte, own) != own:
                    other = written[byte]
                if a.write and byte in read and (read[byte][0] != own or read[byte][1]):
                    later.append((lane, byte, read[byte][0]))
                elif other != own:
                    later.append((lane, byte, other))
        for step in (conflicts, later):
            if step:
                lane = step[0][0]
                found.append((own, lane, a.write, [o for at, _, o in step if at == lane][-1]))
                break
    return found


def findings(report: _emulator.Report) -> list[tuple[int, int, bool, int]]:
    assert checks(report) <= {"global-race"}
    return [
        (
            f.workgroup,
            f.lane,
            "global-race: writes" in f.message,
            int(f.message.split("that workgroup ")[1].split(" ")[0]),
        )
        for f in report.findings
    ]


def store(workgroup: int, kind: str, offset: int = 0, stride: int = 4, lanes: int = ALL) -> Access:
    return Access(workgroup, True, kind, offset, stride, lanes)


def load(workgroup: int, kind: str, offset: int = 0, stride: int = 4, lanes: int = ALL) -> Access:
    return Access(workgroup, False, kind, offset, stride, lanes)


CASES = {
    "neighbouring bytes": ([store(0, "ubyte"), store(1, "ubyte", 1)], 0),
    "a dword, then a byte of it": ([store(0, "dword"), store(1, "ubyte", 3)], 1),
    "a byte, then its dword": ([store(0, "ubyte", 2), store(1, "dword")], 1),
    "a byte read, another written": ([load(0, "ubyte"), store(1, "ubyte", 1)], 0),
    "a dword read, a byte written": ([load(0, "dword"), store(1, "ubyte", 1)], 1),
    "reads alone": ([load(0, "dword"), load(1, "ubyte"), load(2, "dwordx4", 0, 16)], 0),
    "one lane of 64": ([store(0, "dword", 0, 4, 1 << 37), store(1, "dword")], 1),
    "one lane of 64, wide": ([load(0, "dwordx4", 0, 16, 1 << 51), store(1, "dwordx4", 0, 16)], 1),
    "a dword between two": ([store(0, "dword"), store(1, "dword", 2, 4, 1 << 20)], 1),
    "one read before the others": (
        [load(0, "dword", 0, 4, 1), load(0, "dword"), store(1, "dword", 0, 4, 0b1110)],
        1,
    ),
    "its own bytes": ([store(0, "dword"), store(0, "ubyte", 1), load(0, "dwordx2", 0, 8)], 0),
    "several readers, then one of them": (
        [load(0, "dword"), load(1, "dword"), store(1, "dword")],
        1,
    ),
    "split, and then whole again": (
        [store(0, "ubyte"), load(1, "ubyte", 1), store(2, "dword", 256), load(3, "dword", 256)],
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bytes_of_two_workgroups(name: str) -> None:
    accesses, count = CASES[name]
    found = findings(execute(accesses))
    assert len(found) == count
    assert found == expected(accesses)


@pytest.mark.parametrize("seed", range(60))
def test_random_accesses_conflict_as_bytes_do(seed: int) -> None:
    generator = random.Random(seed)
    accesses = []
    for workgroup in range(4):
        for _ in range(generator.randint(1, 3)):
            kind = generator.choice(list(BYTES) if seed % 2 else list(BYTES)[2:])
            stride = generator.choice((BYTES[kind], 16)) if BYTES[kind] >= 4 else 4
            unit = 1 if seed % 3 == 0 else 4
            offset = generator.randrange(0, SIZE - 63 * stride - 16, unit)
            some = generator.getrandbits(64) & generator.getrandbits(64) | 1 << 5
            lanes = generator.choice((ALL, some, 1 << generator.randrange(64)))
            accesses.append(
                Access(workgroup, generator.random() < 0.4, kind, offset, stride, lanes)
            )
    begin = seed % 4 if seed % 3 == 0 else 4 * (seed % 4)
    assert findings(execute(accesses, begin)) == expected(accesses)


NEIGHBOURS = """
  s_lshr_b32 s13, s2, 2
  s_lshl_b32 s13, s13, 8
  s_and_b32 s14, s2, 3
  v_lshlrev_b32 v1, 2, v0
  v_add_u32 v1, s13, v1                    ; a dword for each lane and 4 workgroups
  v_add_u32 v2, s14, v1                    ; a byte of it for each workgroup
  v_mov_b32 v3, s2
  global_store_byte v2, v3, s[6:7]
  {more}
  s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("seed", range(8))
def test_workgroups_on_several_threads_split_the_same_dwords(seed: int) -> None:
    """Without a race none is found; with one, whoever comes last sees it."""
    launch = {"seed": seed, "threads": 4}
    for more, race in (("", False), ("global_load_dword v4, v1, s[6:7]", True)):
        out = np.zeros((8, 64, 4), np.uint8)
        report = run(NEIGHBOURS.format(more=more), None, out, grid=32, launch=launch)
        assert checks(report) == ({"global-race"} if race else set())
        expected = np.arange(32, dtype=np.uint8).reshape(8, 1, 4)
        np.testing.assert_array_equal(out, np.broadcast_to(expected, out.shape))
