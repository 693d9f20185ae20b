"""Instructions that move values between lanes and registers: DPP, SDWA, lane accesses, swaps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hk_backend import _emulator
from tests.emulator.lanes import ALL, DESTINATION, LANES, SOURCE, STEP, Wave

LANE = np.arange(LANES)
VALUES = (LANE * 0x01010101 + 0x80402010).astype(np.uint32)
MASK = 0xF3C75A96C3D26B1E
ACTIVE = np.array([MASK >> i & 1 for i in range(LANES)], bool)


def row(lane: int) -> tuple[int, int]:
    return lane // 16 * 16, lane % 16


# The lane that a lane reads, None if it reads none (CDNA3 ISA guide, "DPP_CTRL").
CONTROLS: dict[int, Callable[[int], int | None]] = {
    0x1B: lambda i: i // 4 * 4 + 3 - i % 4,  # quad_perm:[3,2,1,0]
    0x4E: lambda i: i ^ 2,  # quad_perm:[2,3,0,1]
    0x101: lambda i: i + 1 if i % 16 < 15 else None,  # row_shl:1
    0x107: lambda i: i + 7 if i % 16 < 9 else None,
    0x111: lambda i: i - 1 if i % 16 else None,  # row_shr:1
    0x11F: lambda i: i - 15 if i % 16 == 15 else None,
    0x123: lambda i: row(i)[0] + (row(i)[1] - 3) % 16,  # row_ror:3
    0x130: lambda i: i + 1 if i < 63 else None,  # wave_shl:1
    0x134: lambda i: (i + 1) % 64,  # wave_rol:1
    0x138: lambda i: i - 1 if i else None,  # wave_shr:1
    0x13C: lambda i: (i - 1) % 64,  # wave_ror:1
    0x140: lambda i: row(i)[0] + 15 - row(i)[1],  # row_mirror
    0x141: lambda i: i // 8 * 8 + 7 - i % 8,  # row_half_mirror
    0x142: lambda i: row(i)[0] - 1 if i >= 16 else None,  # row_bcast:15
    0x143: lambda i: 31 if i >= 32 else None,  # row_bcast:31
    0x155: lambda i: row(i)[0] + 5,  # row_newbcast:5
}


@pytest.mark.parametrize("control", CONTROLS, ids=hex)
@pytest.mark.parametrize("bound_ctrl", [0, 1])
@pytest.mark.parametrize("exec_mask", [ALL, MASK])
def test_dpp(control: int, bound_ctrl: int, exec_mask: int) -> None:
    """A lane whose source is none or inactive keeps its value; with bound_ctrl it reads 0."""
    old = np.full(LANES, 0xABCD, np.uint32)
    got = Wave(exec=exec_mask, destination=old).vector(
        "v_mov_b32", VALUES, dpp=1, dpp_ctrl=control, bound_ctrl=bound_ctrl
    )
    for lane in range(LANES):
        source = CONTROLS[control](lane)
        read = source is not None and exec_mask >> source & 1
        expected = int(VALUES[source]) if read else 0 if bound_ctrl else 0xABCD
        expected = expected if exec_mask >> lane & 1 else 0xABCD
        assert int(got.u32[lane]) == expected, lane


@pytest.mark.parametrize("select", range(7))
@pytest.mark.parametrize("sext", [0, 1])
@pytest.mark.parametrize("target", range(7))
@pytest.mark.parametrize("unused", [0, 1, 2])
def test_sdwa(select: int, sext: int, target: int, unused: int) -> None:
    def part(which: int) -> tuple[int, int]:
        return (8 * which, 8) if which < 4 else (16 * (which - 4), 16) if which < 6 else (0, 32)

    old = np.full(LANES, 0x5A5A5A5A, np.uint32)
    got = Wave(destination=old).vector(
        "v_mov_b32", VALUES, sdwa=1, src0_sel=select, src0_sext=sext, dst_sel=target,
        dst_unused=unused,
    ).u32  # fmt: skip
    (shift, bits), (at, width) = part(select), part(target)
    for lane in range(LANES):
        value = int(VALUES[lane]) >> shift & (1 << bits) - 1
        if sext and value >> (bits - 1):
            value |= -1 << bits
        value &= (1 << width) - 1
        if unused == 2:
            around = 0x5A5A5A5A & ~((1 << width) - 1 << at)
        else:
            around = -1 << (at + width) if unused == 1 and value >> (width - 1) else 0
        assert int(got[lane]) == (value << at | around) % (1 << 32)


def test_lane_accesses_ignore_exec() -> None:
    wave = Wave(exec=MASK)
    sgpr, vgpr = wave.arrays()
    vgpr[SOURCE] = VALUES
    sgpr[5] = 64 + 37  # modulo 64
    read = [("v", SOURCE), ("s", 5)]
    _emulator.execute("v_readlane_b32", "gfx950", sgpr, vgpr, [("s", 9)], read, 0, False, {})
    assert sgpr[9] == VALUES[37]
    first = [("v", SOURCE)]
    _emulator.execute("v_readfirstlane_b32", "gfx950", sgpr, vgpr, [("s", 9)], first, 0, False, {})
    assert sgpr[9] == VALUES[np.flatnonzero(ACTIVE)[0]]
    sgpr[126:128] = 0  # no lane is active: lane 0
    _emulator.execute("v_readfirstlane_b32", "gfx950", sgpr, vgpr, [("s", 9)], first, 0, False, {})
    assert sgpr[9] == VALUES[0]
    write = [("c", 0x77), ("s", 5)]
    before = vgpr.copy()
    destination = [("v", DESTINATION)]
    _emulator.execute("v_writelane_b32", "gfx950", sgpr, vgpr, destination, write, 0, False, {})
    before[DESTINATION, 37] = 0x77
    assert np.array_equal(vgpr, before)


def test_swap() -> None:
    wave = Wave(exec=MASK)
    sgpr, vgpr = wave.arrays()
    vgpr[0], vgpr[STEP] = VALUES, ~VALUES
    both = [("v", 0), ("v", STEP)]
    _emulator.execute("v_swap_b32", "gfx950", sgpr, vgpr, both, both, 0, False, {})
    assert np.array_equal(vgpr[0], np.where(ACTIVE, ~VALUES, VALUES))
    assert np.array_equal(vgpr[STEP], np.where(ACTIVE, VALUES, ~VALUES))


@pytest.mark.parametrize("run", [16, 32])
def test_permlane_swaps(run: int) -> None:
    """The odd runs of vdst are swapped with the even ones of vsrc, the guide says."""
    sgpr, vgpr = Wave().arrays()
    vgpr[0], vgpr[STEP] = VALUES, ~VALUES
    both = [("v", 0), ("v", STEP)]
    name = f"v_permlane{run}_swap_b32"
    _emulator.execute(name, "gfx950", sgpr, vgpr, both, both, 0, False, {})
    d, s = VALUES.reshape(-1, 2, run).copy(), (~VALUES).reshape(-1, 2, run).copy()
    d[:, 1], s[:, 0] = (~VALUES).reshape(-1, 2, run)[:, 0], VALUES.reshape(-1, 2, run)[:, 1]
    assert np.array_equal(vgpr[0], d.ravel())
    assert np.array_equal(vgpr[STEP], s.ravel())


@pytest.mark.parametrize("name", ["read", "write", "mov"])
def test_accumulation_registers(name: str) -> None:
    sgpr, vgpr = Wave(exec=MASK).arrays()
    source, target = {
        "read": (("a", 3), ("v", 4)), "write": (("v", 3), ("a", 4)), "mov": (("a", 3), ("a", 4)),
    }[name]  # fmt: skip
    rows = [index + (256 if kind == "a" else 0) for kind, index in (source, target)]
    vgpr[rows[0]], vgpr[rows[1]] = VALUES, 0
    full = f"v_accvgpr_{name}_b32"
    _emulator.execute(full, "gfx950", sgpr, vgpr, [target], [source], 0, False, {})
    assert np.array_equal(vgpr[rows[1]], np.where(ACTIVE, VALUES, 0))
