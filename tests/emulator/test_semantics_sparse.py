"""SMFMAC against float64 products of a matrix with two of every four elements: each shape and
type, every set of indices. Small integers make all products exact. B's layouts are the tables of
the CDNA4 ISA guide, "Sparse Matrices"."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from hk_backend import _emulator
from tests.emulator.lanes import LANES, Wave
from tests.emulator.matrices import execute
from tests.emulator.test_semantics_convert import FP8

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8}
EIGHT = [f"{a}_{b}" for a in ("fp8", "bf8") for b in ("fp8", "bf8")]
BITS = {16: ["f16", "bf16"], 8: ["i8", *EIGHT]}
"""Types of operands, by their bits."""
# By bits and shape: the first k of each register of B in the first lanes, then what the first k of
# each row of lanes adds. A row has 16 lanes, or the 32 of one half.
LAYOUTS = {
    (16, "16x16x32"): ((0, 2, 4, 6), (0, 8, 16, 24)),
    (16, "32x32x16"): ((0, 2, 4, 6), (0, 8)),
    (8, "16x16x64"): ((0, 4, 8, 12), (0, 16, 32, 48)),
    (8, "32x32x32"): ((0, 4, 8, 12), (0, 16)),
    (16, "16x16x64"): ((0, 2, 4, 6, 32, 34, 36, 38), (0, 8, 16, 24)),
    (16, "32x32x32"): ((0, 2, 4, 6, 16, 18, 20, 22), (0, 8)),
    (8, "16x16x128"): ((0, 4, 8, 12, 64, 68, 72, 76), (0, 16, 32, 48)),
    (8, "32x32x64"): ((0, 4, 8, 12, 32, 36, 40, 44), (0, 16)),
}
GFX942 = list(LAYOUTS)[:4]
PAIRS = list(itertools.combinations(range(4), 2))
"""Indices of two elements of four."""


@dataclass(frozen=True)
class Sparse:
    """An instruction, and how its operands lie."""

    arch: str
    bits: int
    shape: str
    types: str

    @property
    def name(self) -> str:
        result = "i32" if self.types == "i8" else "f32"
        return f"v_smfmac_{result}_{self.shape}_{self.types}"

    @property
    def sizes(self) -> tuple[int, int]:
        m, _, k = map(int, self.shape.split("x"))
        return m, k

    @property
    def sets(self) -> int:
        """The number of sets of indices in a register."""
        m, k = self.sizes
        return 32 // (2 * (k // 2 * m // LANES))

    def dtypes(self) -> list[torch.dtype]:
        names = self.types.split("_") * (1 if "_" in self.types else 2)
        return [FP8.get((self.arch, name)) or TYPES[name] for name in names]

    def depth_of_b(self, lane: int, element: int) -> int:
        firsts, rows = LAYOUTS[self.bits, self.shape]
        register, part = divmod(element, 32 // self.bits)
        return firsts[register] + rows[lane // self.sizes[0]] + part

    def registers(self, elements: np.ndarray) -> np.ndarray:
        """[lane, element] of bits to [register, lane]."""
        per_word = 32 // self.bits
        words = elements.astype(np.uint64).reshape(LANES, -1, per_word)
        shifts = np.arange(per_word, dtype=np.uint64) * np.uint64(self.bits)
        out: np.ndarray = (words << shifts).sum(axis=2).astype(np.uint32).T
        return out

    def __str__(self) -> str:
        return f"{self.arch}-{self.name}"


ALL = [
    Sparse(arch, bits, shape, types)
    for arch, layouts in (("gfx942", GFX942), ("gfx950", list(LAYOUTS)))
    for bits, shape in layouts
    for types in BITS[bits]
]


def bits_of(matrix: torch.Tensor) -> np.ndarray:
    if matrix.element_size() == 1:
        return matrix.view(torch.uint8).numpy()
    return matrix.view(torch.int16).numpy().view(np.uint16)


def run(
    it: Sparse,
    packed: torch.Tensor,
    depths: np.ndarray,
    b: torch.Tensor,
    c: np.ndarray,
    *,
    cbsz: int = 0,
    abid: int = 0,
    other_sets: int = 0,
) -> np.ndarray:
    """D of packed A [row, place], the depth of each of its elements, B [column, k] and C."""
    m, k = it.sizes
    of_a, of_b = k // 2 * m // LANES, k * m // LANES
    a_bits, b_bits = bits_of(packed), bits_of(b)
    places = [[lane // m * of_a + j for j in range(of_a)] for lane in range(LANES)]
    a_lanes = np.array([a_bits[lane % m, places[lane]] for lane in range(LANES)])
    b_lanes = np.array(
        [[b_bits[lane % m, it.depth_of_b(lane, j)] for j in range(of_b)] for lane in range(LANES)]
    )
    chosen = 0 if cbsz else abid % it.sets
    index = np.zeros(LANES, np.uint32)
    for lane in range(LANES):
        own = sum(int(depths[lane % m, p]) % 4 << (2 * j) for j, p in enumerate(places[lane]))
        mask = ((1 << (2 * of_a)) - 1) << (2 * of_a * chosen)
        index[lane] = (other_sets & ~mask) | (own << (2 * of_a * chosen))
    wave = Wave(arch=it.arch, exec=0x5)  # SMFMAC ignores EXEC
    sgpr, vgpr = wave.arrays()
    for at, elements in ((0, a_lanes), (16, b_lanes)):
        rows = it.registers(elements)
        vgpr[at : at + len(rows)] = rows
    vgpr[40] = index
    lanes = np.arange(LANES)
    rows_of_d = [256 // m * (r // 4) + lanes // m * 4 + r % 4 for r in range(m * m // LANES)]
    for r, row in enumerate(rows_of_d):
        vgpr[64 + r] = c[row, lanes % m].view(np.uint32)
    operands: list[tuple[object, ...]] = [("v", 0), ("v", 16), ("v", 40), ("v", 64)]
    fields = {"cbsz": cbsz, "abid": abid}
    result = execute(it.name, it.arch, sgpr, vgpr, operands, wave.mode, fields).vgpr
    d = np.zeros_like(c)
    for r, row in enumerate(rows_of_d):
        d[row, lanes % m] = result[64 + r].view(c.dtype)
    return d


def integers(shape: tuple[int, ...], dtype: torch.dtype, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.integers(-4, 5, shape).astype(np.float32)).to(dtype)


def sparse(it: Sparse, rng: np.random.Generator) -> tuple[torch.Tensor, np.ndarray]:
    """Packed A, and the depth of each of its elements: two ascending ones of every four."""
    m, k = it.sizes
    pairs = np.array(PAIRS)[rng.integers(0, len(PAIRS), (m, k // 4))]
    depths = (pairs + 4 * np.arange(k // 4)[:, None]).reshape(m, k // 2)
    return integers((m, k // 2), it.dtypes()[0], rng), depths


def dense(it: Sparse, packed: torch.Tensor, depths: np.ndarray) -> np.ndarray:
    """A [row, k] in float64, with the zeros that packed A leaves out."""
    out = np.zeros(it.sizes)
    np.put_along_axis(out, depths, packed.to(torch.float64).numpy(), axis=1)
    return out


def accumulator(it: Sparse, rng: np.random.Generator) -> np.ndarray:
    c = rng.integers(-9, 9, (it.sizes[0], it.sizes[0]))
    return c.astype(np.int32 if it.types == "i8" else np.float32)


def test_every_opcode_takes_part() -> None:
    for arch in ("gfx942", "gfx950"):
        names = {name for *_, name, _ in _emulator.opcodes(arch) if "smfmac" in name}
        assert names == {it.name for it in ALL if it.arch == arch}


@pytest.mark.parametrize("it", ALL, ids=str)
def test_layout_by_exact_integers(it: Sparse) -> None:
    """Each set of indices by ABID; the first one with CBSZ, whatever ABID says."""
    rng = np.random.default_rng(0)
    packed, depths = sparse(it, rng)
    b = integers(it.sizes, it.dtypes()[1], rng)
    c = accumulator(it, rng)
    expected = dense(it, packed, depths) @ b.to(torch.float64).numpy().T + c
    for cbsz, abid in [(0, abid) for abid in range(it.sets)] + [(1, 1), (2, 3), (4, 0)]:
        d = run(it, packed, depths, b, c, cbsz=cbsz & 3, abid=abid, other_sets=0xE4E4E4E4)
        assert np.array_equal(d, expected), (cbsz, abid)


@pytest.mark.parametrize("it", [it for it in ALL if it.types != "i8"], ids=str)
def test_what_a_leaves_out_multiplies_nothing(it: Sparse) -> None:
    """A holds every second pair of the depth, and B NaN in all others."""
    m, k = it.sizes
    rng = np.random.default_rng(1)
    depths = np.tile((np.arange(k // 4)[:, None] * 4 + [2, 3]).reshape(-1), (m, 1))
    packed = integers((m, k // 2), it.dtypes()[0], rng)
    numbers = rng.integers(-4, 5, (m, k)).astype(np.float32)
    b = torch.from_numpy(np.where(np.isin(np.arange(k), depths[0]), numbers, np.nan))
    c = accumulator(it, rng)
    d = run(it, packed, depths, b.to(it.dtypes()[1]), c)
    expected = packed.to(torch.float64).numpy() @ numbers[:, depths[0]].T.astype(np.float64) + c
    assert np.array_equal(d, expected)


def test_accumulates_in_order_of_k_with_one_rounding_per_product() -> None:
    """The documented assumption, bit by bit; bf16 products are exact in float64."""
    it, rng = Sparse("gfx950", 16, "16x16x64", "bf16"), np.random.default_rng(2)
    _, depths = sparse(it, rng)
    packed = torch.from_numpy(rng.normal(size=(16, 32))).to(torch.bfloat16)
    b = torch.from_numpy(rng.normal(size=(16, 64))).to(torch.bfloat16)
    c = rng.normal(size=(16, 16)).astype(np.float32)
    d = run(it, packed, depths, b, c)
    a, y = dense(it, packed, depths), b.to(torch.float64).numpy()
    expected = c.copy()
    for k in range(64):
        there = (depths == k).any(axis=1)[:, None]
        expected = np.where(
            there, (a[:, k, None] * y[:, k] + expected).astype(np.float32), expected
        )
    assert np.array_equal(d, expected)


# One product at a time on a gfx950: for each element of a lane's A, by rows of lanes, the element
# and the row of lanes of B that it met with indices 0 and 1. With 2 and 3 it met the element two
# further on. From public notes on v_smfmac_f32_16x16x64_f16 for a product of 8 rows.
MET = (
    ((0, 0), (0, 2), (8, 0), (8, 2)),
    ((1, 0), (1, 2), (9, 0), (9, 2)),
    ((4, 0), (4, 2), (12, 0), (12, 2)),
    ((5, 0), (5, 2), (13, 0), (13, 2)),
    ((0, 1), (0, 3), (8, 1), (8, 3)),
    ((1, 1), (1, 3), (9, 1), (9, 3)),
    ((4, 1), (4, 3), (12, 1), (12, 3)),
    ((5, 1), (5, 3), (13, 1), (13, 3)),
)


@pytest.mark.parametrize("index", [0x4444, 0xEEEE])
def test_pairs_of_elements_as_a_gfx950_has_them(index: int) -> None:
    """A one in one element of A, and a number of its own in each element of B."""
    for element, rows in enumerate(MET):
        for row_of_a, (of_b, row_of_b) in enumerate(rows):
            sgpr, vgpr = Wave().arrays()
            vgpr[0:4] = 0
            vgpr[element // 2, 16 * row_of_a] = 0x3C00 << (16 * (element % 2))
            numbers = np.arange(64, dtype=np.float16).reshape(4, 8, 2)  # rows, registers, halves
            for row in range(4):
                words = np.ascontiguousarray(numbers[row]).view(np.uint32)[:, 0]
                vgpr[16:24, 16 * row : 16 * row + 16] = words[:, None]
            vgpr[40], vgpr[64:68] = index, 0
            operands: list[tuple[object, ...]] = [("v", 0), ("v", 16), ("v", 40), ("v", 64)]
            out = execute("v_smfmac_f32_16x16x64_f16", "gfx950", sgpr, vgpr, operands, 0, {}).vgpr
            met = out[64, 0:1].view(np.float32)[0]
            assert met == 16 * row_of_b + of_b + (2 if index == 0xEEEE else 0)
