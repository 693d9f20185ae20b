"""Every load and store of every memory: its bytes, their extension, and the half of a register."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hk_backend import _emulator
from tests.emulator.assembly import PROLOGUE, Program, lines, raw_buffer, run_clean, together, vgprs

LANES = 64
OLD = 0x5A5A5A5A
SIZES = {"byte": 1, "short": 2, "dword": 4}
NAME = re.compile(
    r"(?P<space>buffer|global|flat|scratch)_(?P<kind>load|store)_(?P<sign>[us]?)"
    r"(?P<size>byte|short|dword)(x(?P<count>\d))?(?P<d16>_d16)?(?P<high>_hi)?"
    r"|(?P<ds>ds)_(?P<ds_kind>read|write)(?P<two>2)?(?P<st64>st64)?_(?P<ds_sign>[bui])"
    r"(?P<bits>\d+)(?P<ds_d16>_d16)?(?P<ds_high>_hi)?"
)
MNEMONICS = [
    m for _, _, m, executed in _emulator.opcodes("gfx950") if executed and NAME.fullmatch(m)
]


class Access:
    """The parts of a mnemonic: its memory, direction, width, sign and half."""

    def __init__(self, mnemonic: str) -> None:
        found = NAME.fullmatch(mnemonic)
        assert found
        self.mnemonic, self.space = mnemonic, found["space"] or "ds"
        self.loads = (found["kind"] or found["ds_kind"]) in ("load", "read")
        self.signed = (found["sign"] or found["ds_sign"]) in ("s", "i")
        self.d16 = bool(found["d16"] or found["ds_d16"])
        self.high = bool(found["high"] or found["ds_high"])
        self.two = bool(found["two"])
        each = SIZES[found["size"]] * int(found["count"] or 1) if found["size"] else 0
        self.bytes = each or int(found["bits"]) // 8
        # bytes of the unit in which the second of two is offset, by 1
        self.apart = self.bytes * (64 if found["st64"] else 1)
        self.dwords = -(-self.bytes // 4)
        # place of the second of two that are stored
        self.second = 1024 if self.apart > self.bytes else self.bytes

    def offset(self) -> int:
        """A multiple of the width, 0 for the widest."""
        return 0 if self.two else {1: 3, 2: 2, 4: 4, 8: 8}.get(self.bytes, 0)

    def operands(self, registers: str) -> str:
        """The address: v1 in a memory of the workgroup, v16 in a lane's own scratch."""
        offset = f" offset:{self.offset()}"
        return {
            "buffer": f"{registers}, v1, s[8:11], 0 offen{offset}",
            "global": f"{registers}, v1, s[4:5]{offset}" if self.loads
            else f"v1, {registers}, s[4:5]{offset}",
            "flat": f"{registers}, v[2:3]{offset}" if self.loads
            else f"v[2:3], {registers}{offset}",
            "scratch": f"{registers}, v16, off{offset}" if self.loads
            else f"v16, {registers}, off{offset}",
            "ds": f"{registers}, v1{offset}" if self.loads else f"v1, {registers}{offset}",
        }[self.space]  # fmt: skip


WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"
# v1 = 16 * lane; v[2:3] the same in s[4:5]; v[4:7] its bytes; v[12:15] old; s[8:11] a descriptor.
START = f"""
  v_lshlrev_b32 v1, 4, v0
  v_mov_b32 v16, 0
  v_mov_b32 v3, s5
  v_add_co_u32 v2, vcc, s4, v1
  s_nop 1
  v_addc_co_u32 v3, vcc, v3, v16, vcc
  {raw_buffer(1024)}
  global_load_dwordx4 v[4:7], v1, s[4:5]
  v_mov_b32 v12, {OLD}
  {lines("v_mov_b32 v{}, v12", 13, 14, 15)}
  {WAIT}
"""


def fill(space: str) -> str:
    """Puts v[4:7] where the instruction will look for it; LDS holds all lanes' 33 times over."""
    if space == "scratch":
        return "".join(f"scratch_store_dword v16, v{4 + i}, off offset:{4 * i}\n" for i in range(4))
    if space == "ds":
        copies = (f"ds_write_b128 v1, v[4:7] offset:{1024 * i}\n" for i in range(33))
        return "".join(copies)
    return ""


def loading(access: Access) -> str:
    """The program that stores what a load leaves in v[12:15]."""
    count = access.dwords * (2 if access.two else 1)
    operands = access.operands(vgprs(12, count))
    if access.two:
        operands = f"{vgprs(12, count)}, v17 offset1:1"
    return f"""{START}{fill(access.space)}{WAIT}
      v_lshlrev_b32 v17, {3 if access.bytes == 8 else 2}, v0
      {access.mnemonic} {operands}
      {WAIT}
      global_store_dwordx4 v1, v[12:15], s[6:7]"""


def storing(access: Access) -> str:
    """The program that stores the inverse of v[4:7], and then what is there, and 1024 bytes on."""
    operands = access.operands(vgprs(20, access.dwords))
    if access.two:
        first, last = vgprs(20, access.dwords), vgprs(22, access.dwords)
        operands = f"v1, {first}, {last} offset1:{access.second // access.apart}"
    read = {
        "scratch": "".join(f"scratch_load_dword v{12 + i}, v16, off offset:{4 * i}\n"
                           for i in range(4)),
        "ds": "ds_read_b128 v[12:15], v1\n ds_read_b128 v[4:7], v1 offset:1024",
    }.get(access.space, "global_load_dwordx4 v[12:15], v1, s[4:5]")  # fmt: skip
    return f"""{START}{fill(access.space)}{WAIT}
      v_add_u32 v24, 1024, v1
      v_not_b32 v20, v4
      v_not_b32 v21, v5
      v_not_b32 v22, v6
      v_not_b32 v23, v7
      {access.mnemonic} {operands}
      {WAIT}
      {read}
      {WAIT}
      global_store_dwordx4 v1, v[12:15], s[6:7]
      global_store_dwordx4 v24, v[4:7], s[6:7]"""


LDS, SCRATCH = 33 * 1024, 16
PROGRAMS = {m: (loading if Access(m).loads else storing)(Access(m)) for m in MNEMONICS}
together(Program(PROLOGUE + text, lds=LDS, scratch=SCRATCH) for text in PROGRAMS.values())


def data_of(mnemonic: str) -> np.ndarray:
    rng = np.random.default_rng(sum(mnemonic.encode()))
    return rng.integers(0, 256, (LANES, 16), dtype=np.uint8)


@pytest.mark.parametrize("mnemonic", [m for m in MNEMONICS if Access(m).loads])
def test_load(mnemonic: str) -> None:
    access, data, out = Access(mnemonic), data_of(mnemonic), np.zeros((LANES, 4), np.uint32)
    run_clean(PROGRAMS[mnemonic], data, out, lds=LDS, scratch=SCRATCH)
    flat = data.reshape(-1)
    for lane in range(LANES):
        if access.two:
            at = access.bytes * lane
            places = [at, at + access.apart]
        else:
            places = [16 * lane + access.offset()]
        read = b"".join(
            np.take(flat, np.arange(p, p + access.bytes) % flat.size).tobytes() for p in places
        )
        if access.bytes >= 4:
            wanted = np.frombuffer(read, np.uint32).tolist()
        else:
            value = int.from_bytes(read, "little", signed=access.signed)
            # a d16 load clears the other half: SRAM ECC (LLVM, "sramecc")
            value &= 0xFFFF if access.d16 else 0xFFFFFFFF
            wanted = [value << 16 if access.high else value]
        wanted += [OLD] * (4 - len(wanted))
        assert out[lane].tolist() == wanted, (mnemonic, lane)


@pytest.mark.parametrize("mnemonic", [m for m in MNEMONICS if not Access(m).loads])
def test_store(mnemonic: str) -> None:
    """A store writes its bytes and no other."""
    access, data, out = Access(mnemonic), data_of(mnemonic), np.zeros((2, LANES, 16), np.uint8)
    before = data.copy()
    run_clean(PROGRAMS[mnemonic], data, out, lds=LDS, scratch=SCRATCH)
    wanted = np.stack([before, before])
    at, start, size = access.offset(), 2 if access.high else 0, access.bytes
    wanted[0, :, at : at + size] = ~before[:, start : start + size]
    if access.two:
        second = access.second
        wanted[second // 1024, :, second % 1024 : second % 1024 + size] = ~before[:, 8 : 8 + size]
    np.testing.assert_array_equal(out, wanted)
    if access.space not in ("scratch", "ds"):
        np.testing.assert_array_equal(data, wanted[0])


LOADS_INTO_ONE_REGISTER = """
  global_load_dword v2, v1, s[4:5]
  s_mov_b64 exec, 0xffff
  global_load_dword v2, v1, s[4:5] offset:256
  s_mov_b64 exec, -1
  s_waitcnt vmcnt(0)
  global_store_dword v1, v2, s[6:7]
"""


def test_the_later_load_into_a_register_lands_last() -> None:
    """Each lane has the result of the last load in which it was active."""
    data, out = np.arange(2 * LANES, dtype=np.uint32), np.zeros(LANES, np.uint32)
    run_clean(LOADS_INTO_ONE_REGISTER, data, out)
    lanes = np.arange(LANES)
    np.testing.assert_array_equal(out, np.where(lanes < 16, lanes + LANES, lanes))
