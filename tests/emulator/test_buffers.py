"""Which bytes of a buffer an access reaches, against a plain statement of the range check.

The rules are those of csrc/emulator/memory/buffer_descriptor.hpp, whose sources it names.
Buffers lie within a larger array: what is out of range is there, and must not be touched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.emulator.assembly import checks, needs_llvm, run

pytestmark = needs_llvm

BEFORE, SPAN = 1024, 8192
"""Bytes mapped before the buffer's base, and in all."""
COPIED_TO = 256
"""Where a copy to LDS begins, which M0 says."""
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
        registers = {1: "v8", 2: "v[8:9]", 3: "v[8:10]", 4: "v[8:11]"}[max(1, self.bytes // 4)]
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
        report = run(self.program(), inputs, out, lds=2048)
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


@pytest.mark.parametrize("kind", [*LOADS, *STORES, *COPIES, *ATOMICS])
@pytest.mark.parametrize("records", [500, 501, 502, 503, 505, 507])
def test_a_dword_that_straddles_num_records_is_out_of_range(kind: str, records: int) -> None:
    """An odd number of 16-bit elements ends within a dword."""
    Access(kind, records, offset=spread(kind, 4)).check()


@pytest.mark.parametrize("kind", ["load dwordx4", "store dwordx3", "atomic add"])
def test_the_scalar_offset_counts(kind: str) -> None:
    Access(kind, 700, offset=spread(kind, 0), scalar=64, immediate=8).check()


@pytest.mark.parametrize("kind", ["load dwordx2", "store dword", "atomic add"])
def test_offsets_of_vgpr_and_instruction_wrap_in_32_bits(kind: str) -> None:
    offset = (spread(kind, 0).astype(np.int64) - 256).astype(np.uint32)
    access = Access(kind, 4096, offset=offset, immediate=256)
    assert access.reach(0) == (0, access.bytes)
    access.check()


def test_a_wide_access_does_not_wrap_into_range() -> None:
    """Its second dword would be at offset 0 (LLVM: the check saturates)."""
    offset = np.full(64, 0xFFFFFFFC, np.uint32)
    access = Access("load dwordx4", 4096, offset=offset)
    assert access.reach(0)[1] == 0
    access.check()


@pytest.mark.parametrize("kind", ["load dwordx2", "store dwordx2"])
def test_with_an_index_and_a_stride_the_index_alone_is_checked(kind: str) -> None:
    index = np.arange(64, dtype=np.uint32)
    offset = np.where(index % 3 == 0, 24, 4).astype(np.uint32)  # past the stride, or within
    access = Access(kind, 50, stride=32, index=index, offset=offset)
    assert access.reach(49)[1] == 8
    assert access.reach(50)[1] == 0
    access.check()


@pytest.mark.parametrize("kind", ["load dwordx2", "store dwordx2"])
def test_an_offset_past_the_stride_is_in_range_and_ambiguous(kind: str) -> None:
    index = np.arange(64, dtype=np.uint32) * 2
    access = Access(kind, 100, stride=16, index=index, offset=np.full(64, 20, np.uint32))
    assert access.reach(49)[1] == 8
    assert access.is_ambiguous
    access.check()


def test_what_no_source_reads_another_way_is_not_ambiguous() -> None:
    """An offset past the stride of a record that is out of range; a scalar offset with an index."""
    index = np.arange(64, dtype=np.uint32)
    outside = np.where(index < 40, 8, 12).astype(np.uint32)
    for access in (
        Access("load dwordx2", 40, stride=16, index=index, offset=outside),
        Access("load dwordx2", 40, stride=16, index=index, scalar=48),
    ):
        assert not access.is_ambiguous
        access.check()


def test_without_an_index_a_stride_changes_nothing() -> None:
    Access("load dwordx4", 503, stride=64, offset=spread("load dwordx4", 4)).check()
    Access("store dwordx2", 503, stride=64, offset=spread("store dwordx2", 4)).check()


def test_with_an_index_but_no_stride_bytes_are_checked() -> None:
    index = np.arange(64, dtype=np.uint32)
    Access("load dword", 500, index=index, offset=spread("load dword", 4)).check()


@pytest.mark.parametrize("seed", range(12))
def test_any_descriptor(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = str(rng.choice([*LOADS, *COPIES]))
    flags = int(rng.integers(1, 4))
    Access(
        kind,
        int(rng.integers(1, 900)),
        stride=int(rng.choice([0, 0, 16, 48])),
        index=rng.integers(0, 80, 64).astype(np.uint32) if flags & 2 else None,
        offset=rng.integers(0, 250, 64).astype(np.uint32) * 4 if flags & 1 else None,
        scalar=int(rng.choice([0, 4, 40])),
        immediate=int(rng.choice([0, 16, 112])),
    ).check()


@pytest.mark.parametrize(("records", "expected"), [(16, 4), (15, 3), (12, 3), (3, 0), (0, 0)])
def test_scalar_loads_are_checked_dword_by_dword(records: int, expected: int) -> None:
    data, out = np.arange(1, 65, dtype=np.uint32), np.zeros(4, np.uint32)
    body = f"""
      s_mov_b32 s8, s4
      s_mov_b32 s9, s5
      s_mov_b32 s10, {records}
      s_mov_b32 s11, 0x20000
      s_buffer_load_dwordx4 s[12:15], s[8:11], 0x0
      s_waitcnt lgkmcnt(0)
      v_mov_b32 v2, 0
      v_mov_b32 v4, s12
      v_mov_b32 v5, s13
      v_mov_b32 v6, s14
      v_mov_b32 v7, s15
      global_store_dwordx4 v2, v[4:7], s[6:7]"""
    report = run(body, data, out)
    assert not report.findings, [f.message for f in report.findings]
    np.testing.assert_array_equal(out, np.where(np.arange(4) < expected, data[:4], 0))


def test_scalar_loads_ignore_the_low_bits_of_an_address() -> None:
    """And the finding that says so does not change what is loaded."""
    data, out = np.arange(1, 65, dtype=np.uint32), np.zeros(1, np.uint32)
    body = """
      s_load_dword s8, s[4:5], 0x6
      s_waitcnt lgkmcnt(0)
      v_mov_b32 v2, 0
      v_mov_b32 v4, s8
      global_store_dword v2, v4, s[6:7]"""
    assert checks(run(body, data, out)) == {"misaligned"}
    assert out[0] == data[1]
