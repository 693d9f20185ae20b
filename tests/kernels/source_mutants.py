"""Mutants of the kernels' sources, by hand: what a person might get wrong.

Each is one replacement in one file; the kernels are then compiled and judged as those of
mutants.py, attention's by the bank conflicts that the emulator counts, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.kernels.toolchain import build
from hk_backend.kernels.toolchain.compiler import Toolchain
from tests.kernels.attention_launch import Launch
from tests.kernels.sources import remove_kernels
from tests.ops.cases import Case

SWIZZLE = "csrc/include/hk/types/swizzle.hpp"
ROWS = "csrc/include/hk/types/row_source.hpp"
GRID = "csrc/include/hk/grid.hpp"
TURNS = "csrc/include/hk/schedule.hpp"
ARCH = "csrc/include/hk/arch/gfx9.hpp"
SHAPE = "csrc/kernels/attention/shape.hpp"
WAVE = "csrc/kernels/attention/wave.hpp"
SOFTMAX = "csrc/kernels/attention/softmax.hpp"
EPILOGUE = "csrc/kernels/attention/epilogue.hpp"
ROW_MAXIMUM = "csrc/kernels/attention/row_maximum.hpp"
SPLIT_TILES = "csrc/include/hk/types/split_tiles.hpp"
ATTENTION_ROWS = "csrc/kernels/attention/rows.hpp"
QUERY = "csrc/kernels/attention/query_rows.hpp"
KERNEL = "csrc/kernels/attention_prefill.hip"
PREFILL = "csrc/kernels/attention/prefill.hpp"
GEMM_WAVE = "csrc/kernels/gemm/wave.hpp"
GEMM_STREAM = "csrc/kernels/gemm/stream.hpp"
GEMM_SPLIT = "csrc/kernels/gemm/split.hpp"
GEMM_WORKGROUP = "csrc/kernels/gemm/workgroup.hpp"
GEMM_EPILOGUE = "csrc/kernels/gemm/epilogue.hpp"
GEMM_DEEP = "csrc/kernels/gemm/deep_wave.hpp"
GEMM_SCALES = "csrc/kernels/gemm/scales.hpp"


@dataclass(frozen=True)
class SourceMutant:
    """`old`, which occurs once in `file`, becomes `new`."""

    name: str
    file: str
    old: str
    new: str


PROLOGUE = """\
      wait_copies<0>();
    }
    barrier();
    if (computes)"""
AT_THE_END = "end<kAwaited ? kInFlight"
IN_THE_MIDDLE = "middle<kAwaited ? kInFlight"

MUTANTS = (
    SourceMutant("swizzle: fetches another chunk", SWIZZLE,
                 "lane % (RowBytes / 16) ^ lane / 16", "lane % (RowBytes / 16) ^ 3 - lane / 16"),
    SourceMutant("swizzle: fetches another row", SWIZZLE,
                 "(mixed / 2 + mixed % 2 * 2) * 4", "mixed * 4"),
    SourceMutant("swizzle: conflicts", SWIZZLE,
                 "kBlockStride = kCopyBlock + 64", "kBlockStride = kCopyBlock"),
    SourceMutant("mask: one key less", SOFTMAX, "> visible ?", ">= visible ?"),
    SourceMutant("mask: one key more", SOFTMAX, "> visible ?", "> visible + 1 ?"),
    SourceMutant("mask: tiles that are not whole", PREFILL,
                 "(keys_seen(first_row) + rest) / kTileKeys",
                 "ceil_div(keys_seen(first_row) + rest, kTileKeys)"),
    SourceMutant("mask: from the top left", PREFILL,
                 "num_keys - tile.length + row + 1", "row + 1"),
    SourceMutant("descriptor: a row too many", ROWS,
                 "at.count * row_stride", "(at.count + 1) * row_stride"),
    SourceMutant("descriptor: no end", ROWS,
                 "{0, u32(first), clamp_scalar(count - first, limit)}",
                 "{0, u32(first), u32(limit)}"),
    SourceMutant("descriptor: a result row too many", EPILOGUE,
                 "rows * row_bytes)", "Shape::kWaveRows * row_bytes)"),
    SourceMutant("heads: dealt in turn", PREFILL,
                 "head * args.num_kv_heads / heads", "head % args.num_kv_heads"),
    SourceMutant("heads: some twice", GRID,
                 "id % arch::kXcds * (count / arch::kXcds) + id / arch::kXcds",
                 "id % arch::kXcds * (count / arch::kXcds)"),
    SourceMutant("tiles: those before the first request", GRID, "tile >= 0 && ", ""),
    SourceMutant("pages: another block", ROWS,
                 "block_index(clamp_scalar(row, ", "block_index(clamp_scalar(row + 16, "),
    SourceMutant("pages: past the sequence", ROWS,
                 "block_index(clamp_scalar(row, max(count, 1) - 1))", "block_index(row)"),
    SourceMutant("pages: a row of another place", ROWS,
                 "row - index * block_size", "u32(row) % 16u"),
    SourceMutant("pieces: keys in their order", SPLIT_TILES,
                 "stored_row(lane % 16) *", "lane % 16 *"),
    SourceMutant("pieces: the other channels of a key", SPLIT_TILES,
                 "(4 * block + lane / 16)", "(4 * block + 3 - lane / 16)"),
    SourceMutant("pieces: the other tokens of a value", SPLIT_TILES,
                 "lane / 32 * 8 * strides.row", "(1 - lane / 32) * 8 * strides.row"),
    SourceMutant("pieces: values past the last key", WAVE,
                 "keys_left - kStep * Matrix::kDepth", "keys_left + 1 - kStep * Matrix::kDepth"),
    SourceMutant("pieces: a value's last token left out", WAVE,
                 "keys_left - kStep * Matrix::kDepth", "keys_left - 1 - kStep * Matrix::kDepth"),
    SourceMutant("pieces: masked as rows", SHAPE,
                 "result / 8 * 16 + 8 * half + result % 8",
                 "result / 4 * 8 + 4 * half + result % 4"),
    SourceMutant("pieces: an extent too short", ATTENTION_ROWS,
                 "+ 16 * rows.row_stride", ""),
    SourceMutant("parts: the same keys twice", WAVE,
                 "key_rows(RowReader<KeyTile>::of(in, first_key))",
                 "key_rows(RowReader<KeyTile>::of(in))"),
    SourceMutant("parts: the mask of the whole tile", WAVE,
                 "last_key(last - first_key)", "last_key(last)"),
    SourceMutant("parts: a tile too few", PREFILL,
                 "keys_seen(first_row + wave_rows - 1) - part",
                 "keys_seen(first_row + wave_rows - 1) - kTileKeys / 2"),
    SourceMutant("parts: a tile too many is whole", PREFILL,
                 "- Shape::kWaveKeys - part;", "- part;"),
    SourceMutant("parts: queries of one of them", QUERY,
                 "rows - share.first_row,", "rows - 2 * share.first_row,"),
    SourceMutant("join: without a barrier before", EPILOGUE,
                 "      take_over();\n      if (Shape", "      if (Shape"),
    SourceMutant("join: without a barrier between", EPILOGUE,
                 "    synchronize();\n    RowSums", "    RowSums"),
    SourceMutant("join: the other sum as it is", ROW_MAXIMUM,
                 "total * here + other.total * there", "total * here + other.total"),
    SourceMutant("join: without the other maximum", ROW_MAXIMUM,
                 "    maximum = both;\n", ""),
    SourceMutant("rescale: without the sum", SOFTMAX, "sum *= Pair(shrink);", ""),
    SourceMutant("rescale: never", SOFTMAX, "any(next_max > maximum.limit)", "next_max > 1e38f"),
    SourceMutant("prologue: no barrier", WAVE, PROLOGUE, PROLOGUE.replace("    barrier();\n", "")),
    SourceMutant("prologue: no wait", WAVE,
                 PROLOGUE, PROLOGUE.replace("wait_copies<0>();", ";")),
    SourceMutant("prologue: waits for a copy less", WAVE,
                 PROLOGUE, PROLOGUE.replace("copies<0>", "copies<1>")),
    SourceMutant("prologue: the barrier before the wait", WAVE, PROLOGUE,
                 "    barrier();\n" + PROLOGUE.replace("    barrier();\n", "")),
    SourceMutant("turns: late waves wait for a copy less", WAVE,
                 IN_THE_MIDDLE, f"{IN_THE_MIDDLE} + 1"),
    SourceMutant("turns: early waves wait for a copy less", WAVE,
                 AT_THE_END, f"{AT_THE_END} + 1"),
    SourceMutant("turns: late waves at both barriers", TURNS,
                 "meet<Pending>(1 - late)", "meet<Pending>(1)"),
    SourceMutant("turns: no wait", ARCH, "s_waitcnt %1", "; %1"),
    SourceMutant("stages: one of V too few", WAVE,
                 "kValueStages = kKeyStages + ", "kValueStages = kKeyStages - 1 + "),
    SourceMutant("turns: one of V too few", WAVE, "kKeyStages + Shape::Turns::kLate", "kKeyStages"),
    SourceMutant("stages: one of K too few", WAVE,
                 "TileRing<KeyTile, kKeyStages>", "TileRing<KeyTile, kKeyStages - 1>"),
)  # fmt: skip

GEMM_PROLOGUE = """\
      wait_copies<(Shape::kStages - 1) * kCopies>();
      barrier();
"""
NEXT_STEP = """\
        wait_copies<(Shape::kStages - 2) * kCopies>();
        barrier();
"""
GEMM_MUTANTS = (
    SourceMutant("first step: no barrier", GEMM_WAVE,
                 GEMM_PROLOGUE, GEMM_PROLOGUE.replace("      barrier();\n", "")),
    SourceMutant("first step: no wait", GEMM_WAVE, GEMM_PROLOGUE, "      barrier();\n"),
    SourceMutant("first step: waits for a copy less", GEMM_WAVE,
                 GEMM_PROLOGUE, GEMM_PROLOGUE.replace("kCopies>", "kCopies + 1>")),
    SourceMutant("prologue: copies all steps to the same tile", GEMM_WAVE,
                 "start_copy<copy>(a_.ring.tile(i), w_.ring.tile(i))",
                 "start_copy<copy>(a_.ring.tile(0), w_.ring.tile(i))"),
    SourceMutant("loop: no barrier before the copies", GEMM_WAVE,
                 NEXT_STEP, NEXT_STEP.replace("        barrier();\n", "")),
    SourceMutant("loop: waits for a step less", GEMM_WAVE,
                 "wait_copies<(Shape::kStages - 2)", "wait_copies<(Shape::kStages - 1)"),
    SourceMutant("loop: waits for a copy less", GEMM_WAVE,
                 NEXT_STEP, NEXT_STEP.replace("kCopies>", "kCopies + 1>")),
    SourceMutant("loop: copies to the next step's tile", GEMM_WAVE,
                 "start_copy<copy>(free_a, free_w)", "start_copy<copy>(a_.ring.tile(), free_w)"),
    SourceMutant("loop: a part twice", GEMM_WAVE, "kEnds ? 0 : part + 1", "kEnds ? 0 : part"),
    SourceMutant("end: copies in flight", GEMM_WAVE,
                 "    wait_copies<0>();  // those past", "    // those past"),
    SourceMutant("tail: no mask", GEMM_WAVE, "if constexpr (kLast) mask_past", "if (0) mask_past"),
    SourceMutant("tail: two bytes too many", GEMM_STREAM,
                 "const i32 kept = bytes -", "const i32 kept = bytes + 2 -"),
    SourceMutant("tail: two bytes too few", GEMM_STREAM,
                 "const i32 kept = bytes -", "const i32 kept = bytes - 2 -"),
    SourceMutant("tail: parts that it begins in are whole", GEMM_STREAM,
                 "keep<32 * Pieces>", "keep<1>"),
    SourceMutant("tail: the mask of the first part", GEMM_WAVE,
                 "bytes - part * 32 * Format::kPiecesA", "bytes"),
    SourceMutant("activations: past the last row's end", GEMM_STREAM,
                 "row_bytes(args) - used + start, span.bytes", "start, span.bytes"),
    SourceMutant("weights: a group too many", GEMM_STREAM,
                 "span.bytes = groups * group_bytes", "span.bytes = (groups + 1) * group_bytes"),
    SourceMutant("split: not released", GEMM_SPLIT,
                 '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");', ""),
    SourceMutant("split: not acquired", GEMM_SPLIT,
                 'if (last) __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");', ""),
    SourceMutant("split: counted before all waves have stored", GEMM_SPLIT,
                 "  barrier();\n  auto* before", "  auto* before"),
    SourceMutant("split: the last but one adds up", GEMM_SPLIT, "== splits - 1", "== splits - 2"),
    SourceMutant("split: one is left out", GEMM_SPLIT,
                 "i + j < args.splits ?", "i + j < args.splits - 1 ?"),
    SourceMutant("split: the counter is left", GEMM_SPLIT,
                 "if (wave == 0 && lane.id == 0) *arrived = 0;", ""),
    SourceMutant("split: steps of the next one, too", GEMM_WORKGROUP,
                 "min(share, steps - first)", "min(share + 1, steps - first)"),
    SourceMutant("split: the first one's steps", GEMM_WORKGROUP,
                 "const i32 first = split * share", "const i32 first = 0 * share"),
    SourceMutant("scales: of the first columns", GEMM_EPILOGUE,
                 "view_from<f32>(args_.b_scale, args_.n, column)",
                 "view_from<f32>(args_.b_scale, args_.n, 0)"),
    SourceMutant("bias: of the first columns", GEMM_EPILOGUE,
                 "view_from<T>(values, args_.n, column)", "view_from<T>(values, args_.n, 0)"),
    SourceMutant("c: a row too many", GEMM_EPILOGUE,
                 "left * row_bytes)", "(left + 1) * row_bytes)"),
)  # fmt: skip
"""Of kernels whose waves have a part of the tile each."""
DEEP_MUTANTS = (
    SourceMutant("first step: waits for a step less", GEMM_DEEP,
                 "wait_step<kAhead - 1>();", "wait_step<kAhead>();"),
    SourceMutant("loop: waits for a step less", GEMM_DEEP,
                 "wait_step<kAhead - 2>();", "wait_step<kAhead - 1>();"),
    SourceMutant("last round: waits for a step less", GEMM_DEEP,
                 "wait_step<kAhead - 1 - Stage>();", "wait_step<kAhead - Stage>();"),
    SourceMutant("loop: the steps of the next wave", GEMM_DEEP,
                 "w_(args, column, first_step + wave, lane)", "w_(args, column, first_step, lane)"),
    SourceMutant("tail: no mask", GEMM_DEEP, "if constexpr (kLast) mask_past", "if (0) mask_past"),
    SourceMutant("weights: a group too many", GEMM_DEEP,
                 "span.bytes = groups * group_bytes", "span.bytes = (groups + 1) * group_bytes"),
    SourceMutant("weights: of the columns beside", GEMM_DEEP,
                 "lane.col % 16 * 16;", "lane.col % 8 * 16;"),
    SourceMutant("sums: written where others still read", GEMM_DEEP,
                 "lds + of * Shape::kWaveBytes", "lds + (of ^ 1) * Shape::kWaveBytes"),
    SourceMutant("sums: read before they are written", GEMM_DEEP, "  synchronize();\n", ""),
    SourceMutant("sums: one wave's is left out", GEMM_DEEP,
                 "static_for<1, Shape::kWaves>(", "static_for<2, Shape::kWaves>("),
    SourceMutant("end: copies in flight", GEMM_DEEP,
                 "    wait_copies<0>();  // those", "    // those"),
)  # fmt: skip
"""Of kernels whose waves share the depth."""
SCALES_MUTANTS = (
    SourceMutant("activations: of the first step", GEMM_SCALES,
                 "advance(rows_, step_bytes_);", ""),
    SourceMutant("weights: of the first step", GEMM_SCALES,
                 "weights_ += weights_are_scaled_ ? Shape::kNextStep * sizeof(f32) : 0;", ""),
    SourceMutant("weights: of the first columns", GEMM_SCALES, "min(column / kScaleBlock", "min(0"),
    SourceMutant("those of the next step", GEMM_SCALES,
                 "slot_ + Copy * arch::kLanes * sizeof(f32)", "Copy * arch::kLanes * sizeof(f32)"),
    SourceMutant("last steps: the scales of one", GEMM_DEEP, "scales_.pass();", ";"),
    SourceMutant("the last step's sums are left out", GEMM_SCALES,
                 "add(total.block[column][row], sums_.block[column][row], factor_[row]);", ""),
    SourceMutant("activations: past the last one", GEMM_SCALES,
                 "(last - first + 1)", "(last - first + 2)"),
)  # fmt: skip
"""Of kernels with scales of blocks."""

CASES = (
    Case(lengths=((70, 330), (300, 300), (1, 1)), num_heads=8, num_kv_heads=4, block_size=48),
    Case(lengths=((40, 1000),), num_heads=1, causal=False, magnitude=4.0, block_size=16),
    Case(lengths=((9, 20),), num_heads=16, num_kv_heads=4, before=600, causal=False),
    Case(lengths=((20, 700), (3, 0)), num_heads=1, magnitude=12.0),
)
FLAGS = (*(flag for flag in build.FLAGS if flag != "-g"), "-Wno-error")
"""The same instructions, without the line tables: a third of the compiler's time."""


@cache
def launch(entry: KernelEntry, case: Case) -> Launch:
    return Launch(entry, case)


def compile_mutant(
    mutant: SourceMutant | None, folder: Path, tools: Toolchain, entries: Sequence[KernelEntry]
) -> bytes:
    """The code object of the changed sources (of the unchanged ones if None), with only `entries`,
    which are of one source: the others are the same template.

    Raises `ValueError` if the text to change does not occur once.
    """
    shutil.copytree(build.ROOT / "csrc" / "include", folder / "csrc" / "include")
    shutil.copytree(build.ROOT / "csrc" / "kernels", folder / "csrc" / "kernels")
    [kernel] = {f"csrc/kernels/{entry.path.stem}.hip" for entry in entries}
    family = catalogue(entries[0].arch).families[entries[0].operator]
    remove_kernels(folder / kernel, [entry for entry in family if entry not in entries])
    if mutant is not None:
        path = folder / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            raise ValueError(f"{mutant.name}: {mutant.old!r} occurs {text.count(mutant.old)} times")
        path.write_text(text.replace(mutant.old, mutant.new))
    output = folder / "mutant.co"
    tools.run("clang++", *FLAGS, "--offload-arch=gfx950", kernel, "-o", output, cwd=folder)
    return output.read_bytes()


def caught_by(entry: KernelEntry, code_object: bytes) -> str | None:
    """What shows that `code_object` is wrong; None if nothing does."""
    for case in CASES:
        outcome = launch(entry, case).run(code_object)
        if outcome.findings:
            return outcome.findings[0].check
        if not outcome.excess <= 1:
            return "wrong result"
        phases = outcome.report.counters.lds_phases.values()
        if any(taken > needed for taken, needed in phases):
            return "bank conflicts"
    return None
