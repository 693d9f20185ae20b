"""Measurements that `hk-backend time --measure` makes on a GPU: one row for each micro-kernel.

A row's kernel (csrc/kernels/measure) is launched twice, the second time for three times as long.
The row's result is the difference, so that the code around the measured instruction does not count.
hk_backend/lab/timing/measured.py computes the timing model's parameters from the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
ONE, ALL, SAME_SIMD, SECOND = 0x01, 0xFF, 0x11, 0x10
"""Sets of a workgroup's waves that take part, as bits. Waves w and w + 4 share a SIMD."""
ACCESS = 16 * 64
"""Bytes that a wave moves with one access of 16 bytes a lane."""
REPEATS = 16
"""Number of accesses of a wave in one step."""
LINE = 128
"""Bytes of a cache line."""


@dataclass(frozen=True)
class Microbenchmark:
    """One measurement: a kernel and the arguments of its two launches.

    Args:
        kernel: name of the kernel without `measure_`.
        instruction: mnemonic of the instruction that the kernel repeats; empty: none.
        waves: waves that take part, as bits. Kernels of fewer than 8 waves run all of theirs.
        everywhere: one workgroup on each compute unit, instead of a single workgroup.
        many: workgroups for each compute unit; the launches then differ in their number, not in
            steps. 0: the launches differ in steps.
        stride: bytes from lane to lane of an LDS access.
        memory: bytes that streams and chains go round in.
        chain: the memory holds one chain of pointers through all of it.
        steps: steps of the shorter launch, enough to fill the cache that should hold the memory.
    """

    name: str
    kernel: str
    instruction: str
    waves: int = ONE
    everywhere: bool = False
    many: int = 0
    stride: int = 0
    memory: int = 64 * KIB
    chain: bool = False
    steps: int = 64


@dataclass(frozen=True)
class MicrobenchmarkResult:
    """Result of a row: the difference of its two launches, where nothing else is said.

    Args:
        clocks: clocks of one repeat, by the number of the wave; the mean over workgroups.
        microseconds: time of one step of the whole launch; with `many`, of one more workgroup on
            each compute unit.
        gigahertz: the compute units' clock rate during the longer launch.
        alone: clocks of a wave's whole loop in the shorter launch.
        gap: microseconds from the end of a launch to the start of the next on the same stream.
        call: microseconds that the host waits for a launch, beyond the launch itself.
        workgroups: number of workgroups of the longer launch.
    """

    clocks: Mapping[int, float]
    microseconds: float
    gigahertz: float
    alone: float
    gap: float
    call: float
    workgroups: int

    @property
    def mean(self) -> float:
        """Clocks of one repeat, averaged over all waves."""
        return fmean(self.clocks.values())


def control() -> Iterator[Microbenchmark]:
    """Rows of instructions without a unit of their own, the clock, and workgroups' starts."""
    for slots in (0, 1, 7, 15):
        yield Microbenchmark(f"s_nop_{slots}", f"s_nop_{slots}", "s_nop")
    yield Microbenchmark("s_add", "s_add", "s_add_u32")
    yield Microbenchmark("branch", "branch", "s_branch")
    for waves in (2, 4, 8):
        yield Microbenchmark(f"barrier_{waves}", f"barrier_{waves}", "s_barrier", ALL)
    # long enough for the power management to settle
    yield Microbenchmark("clock", "s_nop_15", "s_nop", ALL, everywhere=True, steps=1 << 13)
    yield Microbenchmark("launch", "nothing", "")
    for waves in (1, 8):
        name = f"workgroups_of_{waves}"
        yield Microbenchmark(name, f"whole_lds_{waves}", "", ALL, everywhere=True, many=64, steps=0)


def vector() -> Iterator[Microbenchmark]:
    """Rows of vector instructions: one chain, four chains, and four in two waves of one SIMD."""
    for name, instruction in {
        "fma_f32": "v_fma_f32",
        "fma_f32_packed": "v_pk_fma_f32",
        "fma_f16_packed": "v_pk_fma_f16",
        "fma_f64": "v_fma_f64",
        "multiply_i32": "v_mul_lo_u32",
        "swap_b32": "v_swap_b32",
        "exp_f32": "v_exp_f32",
    }.items():
        yield from _registers(name, instruction)
        yield Microbenchmark(f"{name}_shared", f"{name}_independent", instruction, SAME_SIMD)
    yield Microbenchmark("priority", "priority", "v_fma_f32", SAME_SIMD)
    name, kernel = "clock_fma_f32", "fma_f32_independent"
    yield Microbenchmark(name, kernel, "v_fma_f32", ALL, everywhere=True, steps=1 << 16)


MATRIX = {
    "bf16_16x16x16": "v_mfma_f32_16x16x16_bf16",
    "bf16_32x32x8": "v_mfma_f32_32x32x8_bf16",
    "bf16_16x16x32": "v_mfma_f32_16x16x32_bf16",
    "bf16_32x32x16": "v_mfma_f32_32x32x16_bf16",
    "f16_16x16x16": "v_mfma_f32_16x16x16_f16",
    "f16_32x32x8": "v_mfma_f32_32x32x8_f16",
    "f16_16x16x32": "v_mfma_f32_16x16x32_f16",
    "f16_32x32x16": "v_mfma_f32_32x32x16_f16",
    "fp8_16x16x32": "v_mfma_f32_16x16x32_fp8_fp8",
    "fp8_32x32x16": "v_mfma_f32_32x32x16_fp8_fp8",
    "i8_16x16x32": "v_mfma_i32_16x16x32_i8",
    "i8_32x32x16": "v_mfma_i32_32x32x16_i8",
    "i8_16x16x64": "v_mfma_i32_16x16x64_i8",
    "i8_32x32x32": "v_mfma_i32_32x32x32_i8",
    "f32_16x16x4": "v_mfma_f32_16x16x4_f32",
    "f32_32x32x2": "v_mfma_f32_32x32x2_f32",
    **{
        f"{name}_{shape}": f"v_mfma_{'scale_' if name.startswith('mx') else ''}f32_{shape}_f8f6f4"
        for name in ("fp8", "fp6", "fp4", "fp8_fp4", "mxfp8", "mxfp4")
        for shape in ("16x16x128", "32x32x64")
    },
}
"""Matrix instructions by the name of their kernel: types of the operands, and the shape.

One type stands for both operands."""


def matrix() -> Iterator[Microbenchmark]:
    """Rows of matrix instructions.

    They measure chains on one and on four accumulators, other readers of a result, vector work
    beside matrix work, and the clock rate under full matrix load.
    """
    for name, instruction in MATRIX.items():
        yield from _registers(f"mfma_{name}", instruction)
    for reader in ("vector", "operand"):
        yield Microbenchmark(f"mfma_then_{reader}", f"mfma_then_{reader}", "v_mfma_")
    for name, waves in (("both", SAME_SIMD), ("matrix", ONE), ("vector", SECOND)):
        mnemonic = "v_fma_f32" if waves == SECOND else "v_mfma_f32_16x16x16_bf16"
        yield Microbenchmark(f"beside_{name}", "mfma_beside_vector", mnemonic, waves)
    for name in ("bf16_32x32x8", "bf16_32x32x16", "fp8_32x32x64"):
        kernel = f"mfma_{name}_independent"
        yield Microbenchmark(
            f"clock_{name}", kernel, MATRIX[name], ALL, everywhere=True, steps=1 << 14
        )


def lds() -> Iterator[Microbenchmark]:
    """Rows of a compute unit's LDS: eight waves by width and conflicts, and one wave's latency."""
    for access, width in itertools.product(("read", "write"), (4, 8, 16)):
        kernel = f"lds_{access}_b{8 * width}"
        for ways in (1, 2, 4, 8):
            name = kernel if ways == 1 else f"{kernel}_{ways}_ways"
            yield Microbenchmark(name, kernel, f"ds_{kernel[4:]}", ALL, stride=width * ways)
    name = "lds_read_b64_transposed"
    yield Microbenchmark(name, name, "ds_read_b64_tr_b16", ALL, stride=8)
    yield Microbenchmark("lds_latency", "lds_latency", "ds_read_b32", stride=4)


def streams() -> Iterator[Microbenchmark]:
    """Rows of reads and writes in bulk, by the memory or cache that holds the data.

    The first rows run on one compute unit, the others on all.
    """
    load, store, copy = "buffer_load_dwordx4", "buffer_store_dwordx4", "buffer_load_dword"
    yield Microbenchmark("l1_read", "memory_read", load, ALL, memory=16 * KIB)
    yield Microbenchmark("l2_read", "memory_read", load, ALL, memory=MIB)
    yield Microbenchmark("l2_copy_to_lds", "copy_to_lds", copy, ALL, memory=MIB)
    yield Microbenchmark("fabric_read", "memory_read", load, ALL, memory=64 * MIB, steps=512)
    for name, size, steps in (("infinity_cache", 128 * MIB, 64), ("hbm", 2 * GIB, 128)):
        for kind, instruction in (("read", load), ("write", store), ("copy", load)):
            yield Microbenchmark(
                f"{name}_{kind}", f"memory_{kind}", instruction, ALL,
                everywhere=True, memory=size, steps=steps,
            )  # fmt: skip


def chains() -> Iterator[Microbenchmark]:
    """Rows of loads that each wait for the one before, by the cache that holds the data."""
    for name, size in (
        ("l1", 16 * KIB),
        ("l2", MIB),
        ("infinity_cache", 64 * MIB),
        ("hbm", 2 * GIB),
    ):
        yield _chain(f"{name}_latency", "memory_latency", "global_load_dword", size)
    for name, size in (("scalar", 8 * KIB), ("scalar_l2", MIB)):
        yield _chain(f"{name}_latency", "scalar_latency", "s_load_dword", size)


def microbenchmarks() -> tuple[Microbenchmark, ...]:
    """All rows, in the order in which they are run."""
    families = (control, vector, matrix, lds, streams, chains)
    return tuple(itertools.chain.from_iterable(family() for family in families))


def chain_entries(size: int) -> int:
    """Number of cache lines of `size` bytes that a chain visits.

    A limit keeps the chain short; it is still large enough for the caches not to hold it.
    """
    return min(size // LINE, 1 << 22 if size > GIB else 1 << 16)


def _chain(name: str, kernel: str, instruction: str, size: int) -> Microbenchmark:
    """A row that follows its chain round once; the longest need not, since no cache holds it."""
    steps = min(chain_entries(size), 1 << 16) // REPEATS
    return Microbenchmark(name, kernel, instruction, memory=size, chain=True, steps=steps)


def _registers(name: str, instruction: str) -> Iterator[Microbenchmark]:
    for kind in ("dependent", "independent"):
        yield Microbenchmark(f"{name}_{kind}", f"{name}_{kind}", instruction)
