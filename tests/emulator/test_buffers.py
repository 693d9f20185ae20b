"""Bytes of a buffer that an access reaches, compared with a plain statement of the range check.

The rules are those of csrc/emulator/memory/buffer_descriptor.hpp, whose sources it names.
Buffers lie within a larger array: what is out of range is there, and must not be touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tests.emulator.assembly import (
    PROLOGUE,
    Program,
    checks,
    raw_buffer,
    run,
    run_clean,
    together,
    vgprs,
)

BEFORE, SPAN = 1024, 8192
"""Bytes mapped before the buffer's base, and in all."""
COPIED_TO = 256
"""Offset in LDS at which a copy begins; M0 holds it."""
LDS = 2048
WORDS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}


@dataclass
class Access:
    """One buffer instruction on 64 lanes; `index` and `offset` per lane, None without the flag."""

    kind: str  # "load dwordx2", "store short", "atomic add", "copy dwordx4"
    num_records: int
    stride: int = 0
    index: np.ndarray | None = None
    offset: np.ndarray | None = None
    scalar: int = 0
    immediate: int = 0

    @property
    def width(self) -> str:
        return self.kind.split()[1]

    @property
    def bytes(self) -> int:
        narrow = {"ubyte": 1, "byte": 1, "ushort": 2, "short": 2, "add": 4, "add_x2": 8}
        return narrow.get(self.width) or 4 * WORDS[self.width]

    def reach(self, lane: int) -> tuple[int, int]:
        """(first byte from the base on, how many bytes are in range) of a lane's access."""
        index = 0 if self.index is None else int(self.index[lane])
        offset = 0 if self.offset is None else int(self.offset[lane])
        offset = (offset + self.immediate) % 2**32
        first = index * self.stride + self.scalar + offset
        if self.index is not None and self.stride:
            return first, self.bytes if index < self.num_records else 0
        piece = self.bytes if self.kind.startswith("atomic") else min(self.bytes, 4)
        room = max(self.num_records - offset - self.scalar, 0)
        return first, min(self.bytes, room // piece * piece)

    @property
    def is_ambiguous(self) -> bool:
        """Whether public sources disagree about some lane (docs/emulator.md)."""
        zeros = np.zeros(64, np.int64)
        index = zeros if self.index is None else self.index.astype(np.int64)
        sums = self.immediate + (zeros if self.offset is None else self.offset.astype(np.int64))
        if (sums >= 2**32).any():
            return True
        if self.index is None or not self.stride:
            return self.scalar > self.num_records
        past = sums + self.bytes > self.stride
        return bool((past & (index < self.num_records)).any())

    def program(self) -> str:
        """v2, v3: index and offset from `data`; results, 16 bytes a lane, go to s[6:7] + SPAN."""
        flags = ["idxen"] * (self.index is not None) + ["offen"] * (self.offset is not None)
        address = {0: "off", 1: "v2", 2: "v[2:3]"}[len(flags)]
        what, width = self.kind.split()
        registers = vgprs(8, max(1, self.bytes // 4))
        tail = f"s[8:11], s12 {' '.join(flags)} offset:{self.immediate}"
        body = {
            "load": f"buffer_load_{width} {registers}, {address}, {tail}",
            "store": f"buffer_store_{width} {registers}, {address}, {tail}",
            "atomic": f"buffer_atomic_{width} {registers}, {address}, {tail} sc0",
            "copy": f"buffer_load_{width} {address}, {tail} lds",
        }[what]
        offset_alone = "v_mov_b32 v2, v3" if flags == ["offen"] else ""
        read_back = ""
        if what == "copy":
            read_back = f"""
              v_mul_u32_u24 v4, {self.bytes}, v0
              s_waitcnt vmcnt(0)
              ds_read_b{8 * self.bytes} {registers}, v4 offset:{COPIED_TO + self.immediate}
              s_waitcnt lgkmcnt(0)"""
        return f"""
          v_lshlrev_b32 v4, 3, v0
          global_load_dwordx2 v[2:3], v4, s[4:5]
          v_mov_b32 v8, 0x11111111
          v_mov_b32 v9, 0x22222222
          v_mov_b32 v10, 0x33333333
          v_mov_b32 v11, 0x44444444
          s_add_u32 s8, s6, {BEFORE}
          s_addc_u32 s9, s7, 0
          s_or_b32 s9, s9, {self.stride << 16:#x}
          s_mov_b32 s10, {self.num_records:#x}
          s_mov_b32 s11, 0x20000
          s_mov_b32 s12, {self.scalar:#x}
          s_mov_b32 m0, {COPIED_TO}
          s_waitcnt vmcnt(0)
          {offset_alone}
          s_nop 0
          {body}
          {read_back}
          s_waitcnt vmcnt(0)
          v_lshlrev_b32 v4, 4, v0
          v_add_u32 v4, {SPAN}, v4
          global_store_dwordx4 v4, v[8:11], s[6:7]
        """

    def __str__(self) -> str:
        return f"{self.kind} of {self.num_records}"

    def check(self) -> None:
        """Runs it; compares results, memory and findings with what `reach` says."""
        rng = np.random.default_rng(0)
        inputs = np.zeros((64, 2), np.uint32)
        if self.index is not None:
            inputs[:, 0] = self.index
        if self.offset is not None:
            inputs[:, 1] = self.offset
        out = np.zeros(SPAN + 64 * 16, np.uint8)
        out[:SPAN] = rng.integers(1, 256, SPAN)
        before = out[:SPAN].copy()
        report = run(self.program(), inputs, out, lds=LDS)
        found = {"ambiguous"} if self.is_ambiguous else set()
        assert checks(report) == found, [f.message for f in report.findings]
        data = np.array([0x11111111, 0x22222222, 0x33333333, 0x44444444], np.uint32).view(np.uint8)
        memory, results = before.copy(), np.tile(data, (64, 1))
        what = self.kind.split()[0]
        for lane in range(64):
            first, count = self.reach(lane)
            at = BEFORE + first
            if what == "store":
                memory[at : at + count] = data[:count]
                continue
            got = np.zeros(max(4, self.bytes), np.uint8)
            got[:count] = memory[at : at + count]
            if what == "atomic" and count:
                kind = np.uint64 if self.bytes == 8 else np.uint32
                summed = memory[at : at + count].copy().view(kind) + data[:count].copy().view(kind)
                memory[at : at + count] = summed.view(np.uint8)
            results[lane, : len(got)] = got
        np.testing.assert_array_equal(out[:SPAN], memory)
        np.testing.assert_array_equal(out[SPAN:].reshape(64, 16), results)


LOADS = ["load ubyte", "load ushort", *(f"load {width}" for width in WORDS)]
STORES = ["store byte", "store short", *(f"store {width}" for width in WORDS)]
COPIES = ["copy dword", "copy dwordx4"]
ATOMICS = ["atomic add", "atomic add_x2"]


def spread(kind: str, unit: int) -> np.ndarray:
    """Offsets of 64 lanes that do not overlap, atomics naturally aligned."""
    aligned = 8 if kind.startswith("atomic") else unit
    return np.arange(64, dtype=np.uint32) * max(16, aligned) + (0 if aligned == 8 else unit)


INDEX = np.arange(64, dtype=np.uint32)
TWO_DWORDS = ["load dwordx2", "store dwordx2"]


def cases() -> Iterator[tuple[str, Access]]:
    for kind in (*LOADS, *STORES, *COPIES, *ATOMICS):
        for records in (500, 501, 502, 503, 505, 507):
            yield "the end within a dword", Access(kind, records, offset=spread(kind, 4))
    for kind in ("load dwordx4", "store dwordx3", "atomic add"):
        offset = spread(kind, 0)
        yield "a scalar offset", Access(kind, 700, offset=offset, scalar=64, immediate=8)
        wrapping = (offset.astype(np.int64) - 256).astype(np.uint32)
        yield "offsets wrap in 32 bits", Access(kind, 4096, offset=wrapping, immediate=256)
    # the second dword would be at offset 0 (LLVM: the check saturates)
    last = np.full(64, 0xFFFFFFFC, np.uint32)
    yield "a wide access does not wrap", Access("load dwordx4", 4096, offset=last)
    for kind in TWO_DWORDS:
        yield "a stride without an index", Access(kind, 503, stride=64, offset=spread(kind, 4))
        past = np.where(INDEX % 3 == 0, 24, 4).astype(np.uint32)  # past the stride, or within
        yield "the index alone", Access(kind, 50, stride=32, index=INDEX, offset=past)
        past = np.full(64, 20, np.uint32)
        yield "past the stride", Access(kind, 100, stride=16, index=INDEX * 2, offset=past)
    # all sources agree about an access past the stride of a record that is out of range
    outside = np.where(INDEX < 40, 8, 12).astype(np.uint32)
    yield "clear", Access("load dwordx2", 40, stride=16, index=INDEX, offset=outside)
    yield "clear", Access("load dwordx2", 40, stride=16, index=INDEX, scalar=48)
    offset = spread("load dword", 4)
    yield "an index without a stride", Access("load dword", 500, index=INDEX, offset=offset)
    rng = np.random.default_rng(0)
    for _ in range(12):
        flags = int(rng.integers(1, 4))
        yield (
            "any descriptor",
            Access(
                str(rng.choice([*LOADS, *COPIES])),
                int(rng.integers(1, 900)),
                stride=int(rng.choice([0, 0, 16, 48])),
                index=rng.integers(0, 80, 64).astype(np.uint32) if flags & 2 else None,
                offset=rng.integers(0, 250, 64).astype(np.uint32) * 4 if flags & 1 else None,
                scalar=int(rng.choice([0, 4, 40])),
                immediate=int(rng.choice([0, 16, 112])),
            ),
        )


CASES = list(cases())
together(Program(PROLOGUE + access.program(), lds=LDS) for _, access in CASES)


@pytest.mark.parametrize(("what", "access"), CASES, ids=str)
def test_what_is_in_range(what: str, access: Access) -> None:
    access.check()


@pytest.mark.parametrize(("records", "expected"), [(16, 4), (15, 3), (12, 3), (3, 0), (0, 0)])
def test_scalar_loads_are_checked_dword_by_dword(records: int, expected: int) -> None:
    data, out = np.arange(1, 65, dtype=np.uint32), np.zeros(4, np.uint32)
    body = f"""
      {raw_buffer(records)}
      s_buffer_load_dwordx4 s[12:15], s[8:11], 0x0
      s_waitcnt lgkmcnt(0)
      v_mov_b32 v2, 0
      {"".join(f"v_mov_b32 v{4 + i}, s{12 + i}" + chr(10) for i in range(4))}
      global_store_dwordx4 v2, v[4:7], s[6:7]"""
    run_clean(body, data, out)
    np.testing.assert_array_equal(out, np.where(np.arange(4) < expected, data[:4], 0))


def test_scalar_loads_ignore_the_low_bits_of_an_address() -> None:
    """The address is rounded down to a dword, and a finding says so."""
    data, out = np.arange(1, 65, dtype=np.uint32), np.zeros(1, np.uint32)
    body = """
      s_load_dword s8, s[4:5], 0x6
      s_waitcnt lgkmcnt(0)
      v_mov_b32 v2, 0
      v_mov_b32 v4, s8
      global_store_dword v2, v4, s[6:7]"""
    assert checks(run(body, data, out)) == {"misaligned"}
    assert out[0] == data[1]
