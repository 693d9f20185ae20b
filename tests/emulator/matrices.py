"""Operands of matrix instructions: (row or column, k, block) of each lane's element, after AMD's
matrix instruction calculator."""

from __future__ import annotations

import re

import numpy as np
import torch

from tests.emulator.lanes import LANES, Result


class Shape:
    def __init__(self, name: str) -> None:
        found = re.match(r"v_mfma_\w+?_(\d+)x\d+x(\d+)(?:_(\d+)b)?_(\w+)$", name)
        assert found, name
        self.m, self.k, self.blocks = int(found[1]), int(found[2]), int(found[3] or 1)
        self.types = found[4].split("_") * (1 if "_" in found[4] else 2)

    def inputs(self) -> list[list[tuple[int, int, int]]]:
        """[lane][element] -> (row, k, block)"""
        per_lane = self.m * self.k * self.blocks // LANES
        return [
            [
                (lane % self.m, lane // self.m // self.blocks * per_lane + j,
                 lane // self.m % self.blocks)
                for j in range(per_lane)
            ]
            for lane in range(LANES)
        ]  # fmt: skip

    def outputs(self) -> list[list[tuple[int, int, int]]]:
        """[register][lane] -> (row, column, block)"""

        def place(register: int, lane: int) -> tuple[int, int, int]:
            if self.m == 4:
                return register, lane % 4, lane // 4
            block, i = divmod(register, self.m * self.m // LANES)
            fours = LANES // self.m * (i // 4) + lane // self.m
            return 4 * fours + i % 4, lane % self.m, block

        registers = self.m * self.m * self.blocks // LANES
        return [[place(register, lane) for lane in range(LANES)] for register in range(registers)]


def registers_of(shape: Shape, matrix: torch.Tensor) -> np.ndarray:
    """[blocks, rows, k] of a type to [registers, lanes] of bits."""
    inputs, width = shape.inputs(), 8 * matrix.element_size()
    per_lane = len(inputs[0])
    bits = matrix.view({8: torch.uint8, 16: torch.int16, 32: torch.int32}[width]).numpy()
    out = np.zeros((max(per_lane * width // 32, 1), LANES), np.uint32)
    mask = (1 << width) - 1
    for lane in range(LANES):
        for j, (row, k, block) in enumerate(inputs[lane]):
            at = j * width
            out[at // 32, lane] |= np.uint32((int(bits[block, row, k]) & mask) << (at % 32))
    return out


def c_registers(shape: Shape, c: np.ndarray) -> np.ndarray:
    return np.array([[c[b, i, j] for i, j, b in row] for row in shape.outputs()])


def execute(
    name: str,
    arch: str,
    sgpr: np.ndarray,
    vgpr: np.ndarray,
    operands: list[tuple[object, ...]],
    mode: int,
    fields: dict[str, int],
) -> Result:
    from hk_backend import _emulator

    before = vgpr.copy()
    scc, mode = _emulator.execute(
        name, arch, sgpr, vgpr, [("v", 64)], operands, mode, False, fields
    )
    untouched = np.r_[0:64, 96:512]
    assert np.array_equal(before[untouched], vgpr[untouched])
    return Result(vgpr[64:96], vgpr, sgpr, scc, mode)
