"""Runs one instruction's handler on 64 lanes of given values (csrc/emulator/bindings_semantics)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hk_backend import _emulator

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

LANES = 64
ALL = (1 << 64) - 1
VCC, M0, EXEC = 106, 124, 126
# MODE: round to nearest, all denormals, DX10 clamp, IEEE: what compute kernels start with
MODE = 0x3F0
IEEE = 0x200

DESTINATION, SOURCE, STEP = 64, 0, 8  # VGPRs that the helpers use: dst 64.., src 0, 8, 16, ...


@dataclass
class Result:
    rows: U32  # [dwords, lanes] of the destination
    vgpr: U32
    sgpr: U32
    scc: bool
    mode: int

    def pair(self, index: int) -> int:
        return int(self.sgpr[index]) | int(self.sgpr[index + 1]) << 32

    @property
    def u32(self) -> U32:
        return self.rows[0]

    @property
    def f32(self) -> npt.NDArray[np.float32]:
        return self.rows[0].view(np.float32)

    @property
    def u64(self) -> U64:
        return self.rows[0].astype(np.uint64) | self.rows[1].astype(np.uint64) << np.uint64(32)


def rows_of(values: npt.NDArray[np.generic]) -> U32:
    """[dwords, lanes] of lane values of 16, 32 or 64 bits; 2-d arrays are rows already."""
    if values.ndim == 2:
        return np.ascontiguousarray(values).view(np.uint32)
    if values.itemsize == 8:
        bits = np.ascontiguousarray(values).view(np.uint64)
        return np.stack([bits.astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)])
    if values.itemsize == 2:
        return np.ascontiguousarray(values).view(np.uint16).astype(np.uint32)[None]
    return np.ascontiguousarray(values).view(np.uint32)[None]


@dataclass
class Wave:
    """State before an instruction; VGPRs that nothing sets hold a pattern."""

    arch: str = "gfx950"
    mode: int = MODE
    exec: int = ALL
    vcc: int = 0
    scc: bool = False
    destination: npt.NDArray[np.generic] | None = None  # its old value
    sgpr: dict[int, int] = field(default_factory=dict)

    def arrays(self) -> tuple[U32, U32]:
        sgpr = np.zeros(128, np.uint32)
        for index, value in self.sgpr.items():
            sgpr[index] = value
        for index, value in ((VCC, self.vcc), (EXEC, self.exec)):
            sgpr[index : index + 2] = value & 0xFFFFFFFF, value >> 32
        vgpr = np.full((512, LANES), 0xDEADBEEF, np.uint32)
        return sgpr, vgpr

    def vector(
        self,
        mnemonic: str,
        *sources: npt.NDArray[np.generic] | tuple[object, ...],
        dwords: int = 1,
        masks: tuple[int, ...] = (),
        mask_destination: int | None = None,
        result_is_mask: bool = False,
        modifiers: tuple[str, ...] = (),
        **fields: int,
    ) -> Result:
        """Execute a vector instruction on lane values, or on operands of the binding.

        `masks`: SGPR pairs after the sources.
        `modifiers`: of each source, "", "-", "|" or "-|".
        """
        sgpr, vgpr = self.arrays()
        operands: list[tuple[object, ...]] = []
        for i, source in enumerate(sources):
            if isinstance(source, tuple):
                operands.append(source)
                continue
            rows = rows_of(source)
            vgpr[SOURCE + STEP * i : SOURCE + STEP * i + len(rows)] = rows
            signs = modifiers[i] if i < len(modifiers) else ""
            operands.append(("v", SOURCE + STEP * i, len(rows), "-" in signs, "|" in signs))
        operands += [("s", mask, 2) for mask in masks]
        if self.destination is not None:
            rows = rows_of(self.destination)
            vgpr[DESTINATION : DESTINATION + len(rows)] = rows
        destinations: list[tuple[object, ...]] = [("v", DESTINATION, dwords)]
        if result_is_mask:
            destinations = [("s", 20, 2)]
        if mask_destination is not None:
            destinations.append(("s", mask_destination, 2))
        scc, mode = _emulator.execute(
            mnemonic, self.arch, sgpr, vgpr, destinations, operands, self.mode, self.scc, fields
        )
        return Result(vgpr[DESTINATION : DESTINATION + dwords].copy(), vgpr, sgpr, scc, mode)

    def scalar(
        self, mnemonic: str, *sources: int, dwords: int = 1, wide: tuple[bool, ...] = (), **f: int
    ) -> tuple[int, Result]:
        """Execute a scalar instruction. Sources lie in SGPRs 0, 4, 8; the result in SGPR 40 and up,
        where `destination` was."""
        sgpr, vgpr = self.arrays()
        operands: list[tuple[object, ...]] = []
        for i, value in enumerate(sources):
            sgpr[4 * i : 4 * i + 2] = value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF
            operands.append(("s", 4 * i, 2 if i < len(wide) and wide[i] else 1))
        if self.destination is not None:
            sgpr[40 : 40 + len(self.destination)] = self.destination
        scc, mode = _emulator.execute(
            mnemonic, self.arch, sgpr, vgpr, [("s", 40, dwords)], operands, self.mode, self.scc, f
        )
        result = Result(vgpr[:1], vgpr, sgpr, scc, mode)
        return int(sgpr[40]) | (int(sgpr[41]) << 32 if dwords == 2 else 0), result
