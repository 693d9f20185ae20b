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

from hk_backend.kernels import KernelEntry, catalogue, masks
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
WEIGHTS = "csrc/kernels/attention/row_weights.hpp"
ROW_MAXIMUM = "csrc/kernels/attention/row_maximum.hpp"
SPLIT_TILES = "csrc/include/hk/types/split_tiles.hpp"
ATTENTION_ROWS = "csrc/kernels/attention/rows.hpp"
LANE_STREAM = "csrc/kernels/attention/lane_stream.hpp"
STREAM = "csrc/kernels/attention/key_value_stream.hpp"
MASK = "csrc/kernels/attention/mask.hpp"
LOGITS = "csrc/kernels/attention/logits.hpp"
MASK_OPS = "csrc/include/hk/ops/mask.hpp"
WIDEN = "csrc/include/hk/ops/widen.hpp"
COPY = "csrc/include/hk/ops/copy.hpp"
QUERY = "csrc/kernels/attention/query_rows.hpp"
KERNEL = "csrc/kernels/attention_prefill.hip"
PREFILL = "csrc/kernels/attention/prefill.hpp"
WAVE_ROWS = "csrc/kernels/attention/wave_rows.hpp"


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
BENT = """\
        if constexpr (Logits::kBends) bend<block.value, i.value>(rows, last);
"""
MASKED = """\
        if constexpr (kMasked != Masked::kNot) {
          mask<kMasked, block.value, 2 * i.value>(rows, last, before);
          mask<kMasked, block.value, 2 * i.value + 1>(rows, last, before);
        }
"""
BENT_FIRST, BENT_LAST = BENT + MASKED, MASKED + BENT
AT_THE_END = "end<kAwaited ? kInFlight"
IN_THE_MIDDLE = "middle<kAwaited || kKeys ? kLeft"

MUTANTS = (
    SourceMutant("swizzle: fetches another chunk", SWIZZLE,
                 "lane % (RowBytes / 16) ^ lane / 16", "lane % (RowBytes / 16) ^ 3 - lane / 16"),
    SourceMutant("swizzle: fetches another row", SWIZZLE,
                 "(mixed / 2 + mixed % 2 * 2) * 4", "mixed * 4"),
    SourceMutant("swizzle: conflicts", SWIZZLE,
                 "kBlockStride = kCopyBlock + 64", "kBlockStride = kCopyBlock"),
    SourceMutant("mask: one key less", SOFTMAX, ": kKey > last", ": kKey >= last"),
    SourceMutant("mask: one key more", SOFTMAX, ": kKey > last", ": kKey > last + 1"),
    SourceMutant("mask: tiles that are not whole", PREFILL,
                 "(visible.end(rows.token) + rest) / kTileKeys",
                 "ceil_div(visible.end(rows.token) + rest, kTileKeys)"),
    SourceMutant("mask: from the top left", MASK,
                 "min(keys, max(ahead + row + 1, 0))", "min(keys, row + 1)"),
    SourceMutant("window: one key less", WAVE, "before = window - 1", "before = window - 2"),
    SourceMutant("window: one key more", WAVE, "before = window - 1", "before = window"),
    SourceMutant("window: past the last key", SOFTMAX,
                 "u32(last - kKey) > u32(before)", "last - kKey > before"),
    SourceMutant("window: tiles that it begins in", PREFILL,
                 "ceil_div(visible.first(last) - part, kTileKeys)",
                 "(visible.first(last) - part) / kTileKeys"),
    SourceMutant("window: begins a tile too late", PREFILL,
                 "first_tile = first_seen / kTileKeys",
                 "first_tile = ceil_div(first_seen, kTileKeys)"),
    SourceMutant("window: copies from the first key on", STREAM,
                 "row(first / KeyTile::kRows * KeyTile::kRows + ", "row("),
    SourceMutant("window: values that nobody sees", WAVE,
                 "seen_from = seen - first_key", "seen_from = -first_key"),
    SourceMutant("window: not the first value", WAVE,
                 "seen_from = seen - first_key", "seen_from = seen + 1 - first_key"),
    SourceMutant("window: not the first of two values", MASK_OPS,
                 "if (dropped == 1)", "if (dropped == 0)"),
    SourceMutant("window: nothing after a lone tile", PREFILL,
                 "first_tile + 2 : 0", "first_tile + 1 : 0"),
    SourceMutant("lone tile: values past the last key", WAVE, "(!kNext || kClears)", "(!kNext)"),
    SourceMutant("halves: a step too many", PREFILL,
                 " && first_seen % kTileKeys > part", ""),
    SourceMutant("codes: that nobody sees", STREAM,
                 "    value_filler.keep_from(first_values, seen);\n", ""),
    SourceMutant("codes: not the first one", STREAM, "seen(first %", "seen(1 + first %"),
    SourceMutant("columns: a code too many", WIDEN,
                 "first - i32(row) - 4 * word.value", "first - 1 - i32(row) - 4 * word.value"),
    SourceMutant("columns: a code too few", WIDEN,
                 "first - i32(row) - 4 * word.value", "first + 1 - i32(row) - 4 * word.value"),
    SourceMutant("lane codes: that nobody sees", LANE_STREAM,
                 "max(i32(lane_row), seen)", "lane_row"),
    SourceMutant("shared keys: all of them each time", PREFILL,
                 "begin + part_of_keys * args.part_keys", "begin"),
    SourceMutant("shared keys: the next parts' too", MASK,
                 "Mask::kPart ? min(found, part_end) : found", "found"),
    SourceMutant("shared keys: a tile too many", MASK,
                 "min(found, part_end)", "min(found, part_end + 64)"),
    SourceMutant("shared keys: no part of a lone tile", PREFILL,
                 "if (tiles > first_tile) {", "if (tiles > first_tile + 1) {"),
    SourceMutant("shared keys: the last part without the rest", PREFILL,
                 "if (i32(part_of_keys) != args.parts - 1) ", ""),
    SourceMutant("shared keys: what a part without keys leaves", PREFILL,
                 "  } else {\n    attention.clear();\n  }", "  }"),
    SourceMutant("shared keys: outputs in one place", EPILOGUE,
                 "Mask::kPart ? offset(part, args.out_part) : 0", "0"),
    SourceMutant("shared keys: sums in one place", EPILOGUE,
                 "offset(part, args.lse_part)", "0"),
    SourceMutant("sinks: none", EPILOGUE, "if (sink != kNoScore)", "if (false)"),
    SourceMutant("sinks: that of another head", MASK, "constant(args.sinks)[head]",
                 "constant(args.sinks)[0]"),
    SourceMutant("sinks: not in the sum", WEIGHTS,
                 "total * kept + share(sink)", "total * kept"),
    SourceMutant("sinks: the largest score as it was", WEIGHTS,
                 "__builtin_elementwise_maximum(largest, sink)", "sink"),
    SourceMutant("capped: half as soon", LOGITS, "factor * (2 /", "factor * (1 /"),
    SourceMutant("capped: at half the cap", LOGITS,
                 "to_scalar(2 * kLog2E", "to_scalar(kLog2E"),
    SourceMutant("capped: at twice the cap, past its log-sum-exp", LOGITS,
                 "return cap; }", "return 0; }"),
    SourceMutant("capped: past float32", LOGITS,
                 "__builtin_elementwise_min(factor * (2 / args.soft_cap), kLargest)",
                 "factor * (2 / args.soft_cap)"),
    SourceMutant("capped: after the mask", SOFTMAX, BENT_FIRST, BENT_LAST),
    SourceMutant("capped: never", SOFTMAX, "if constexpr (Logits::kBends)", "if constexpr (false)"),
    SourceMutant("alibi: that of another head", MASK,
                 "constant(args.alibi_slopes)[head]", "constant(args.alibi_slopes)[0]"),
    SourceMutant("alibi: in units of the logit", LOGITS, "slope * kLog2E / factor", "slope"),
    SourceMutant("alibi: from the key before", SOFTMAX,
                 "Pair{kKey, kKey + 1}", "Pair{kKey - 1, kKey}"),
    SourceMutant("alibi: two keys in one place", SOFTMAX,
                 "Pair{kKey, kKey + 1}", "Pair{kKey, kKey}"),
    SourceMutant("alibi: keys in their order", SOFTMAX,
                 "Tiles::key(2 * I, 0) - Tiles::key(2 * I - 2, 0)", "2"),
    SourceMutant("descriptor: a row too many", ROWS,
                 "at.count * row_stride", "(at.count + 1) * row_stride"),
    SourceMutant("descriptor: no end", ROWS,
                 "{0, u32(first), clamp_scalar(count - first, limit)}",
                 "{0, u32(first), u32(limit)}"),
    SourceMutant("descriptor: a result row too many", EPILOGUE,
                 "lane.col < rows.count", "lane.col <= rows.count"),
    SourceMutant("heads: dealt in turn", PREFILL,
                 "divide(head).quotient", "divide(head).rest"),
    SourceMutant("heads: those of another group", PREFILL,
                 "{part, number * args.group,",
                 "{part, (args.num_kv_heads - 1 - number) * args.group,"),
    SourceMutant("shared keys: heads of another group", PREFILL,
                 "{part, number * args.group,",
                 "{part, (args.num_kv_heads - 1 - number) * args.group,"),
    SourceMutant("parts of a window: all of it in each", PREFILL,
                 "own_window = own_end - visible.first(own_token)", "own_window = args.window"),
    SourceMutant("parts of a window: a row without keys", PREFILL,
                 "own_window > 0 ? own_end : 0", "own_end"),
    SourceMutant("parts of a window: without its first tile", PREFILL,
                 "visible.window_begin(all.token) / kTileKeys *",
                 "ceil_div(visible.window_begin(all.token), kTileKeys) *"),
    SourceMutant("heads: some twice", GRID,
                 "id % arch::kXcds * (count / arch::kXcds) + id / arch::kXcds",
                 "id % arch::kXcds * (count / arch::kXcds)"),
    SourceMutant("tiles: those that are not there", GRID,
                 "{tile < tiles,", "{i32(tile) < i32(tiles),"),
    SourceMutant("tiles: turns without room for them", GRID,
                 "in_turns = most * requests < tiles_of(tokens) + requests", "in_turns = true"),
    SourceMutant("tiles: the turn of another request", GRID,
                 "found = slot - rank * requests", "found = 0"),
    SourceMutant("rows: of one head", WAVE_ROWS,
                 "tokens * token_bytes + heads * head_bytes", "tokens * token_bytes"),
    SourceMutant("rows: as if a wave began with a token", WAVE_ROWS,
                 "Grouped ? group.divide(head + row)", "Grouped ? group.divide(row)"),
    SourceMutant("rows: a head of the next token", WAVE_ROWS,
                 "--heads_left == 0", "--heads_left == 1"),
    SourceMutant("rows: queries past the last one", WAVE_ROWS,
                 "if (row >= rows.count) return;", ""),
    SourceMutant("pages: another block", ROWS,
                 "block_index(clamp_scalar(row, ", "block_index(clamp_scalar(row + 16, "),
    SourceMutant("pages: past the sequence", ROWS,
                 "block_index(clamp_scalar(row, max(count, 1) - 1))", "block_index(row)"),
    SourceMutant("pages: a row of another place", ROWS,
                 "row - index * block_size", "u32(row) % 16u"),
    SourceMutant("lanes: values where the keys are", LANE_STREAM,
                 "keys.of[i] + value_apart", "keys.of[i]"),
    SourceMutant("lanes: values of the next row", LANE_STREAM,
                 "keys.of[i] + value_apart", "keys.of[i] + value_apart + row_bytes"),
    SourceMutant("pieces: keys in their order", SPLIT_TILES,
                 "stored_row(lane % 16) *", "lane % 16 *"),
    SourceMutant("pieces: the other channels of a key", SPLIT_TILES,
                 "(4 * block + lane / 16) * strides.piece",
                 "(4 * block + 3 - lane / 16) * strides.piece"),
    SourceMutant("pieces: the other tokens of a value", SPLIT_TILES,
                 "lane / 32 * 8 * strides.row", "(1 - lane / 32) * 8 * strides.row"),
    SourceMutant("pieces: values past the last key", WAVE,
                 "rest(seen.end)", "rest(seen.end + 1)"),
    SourceMutant("pieces: a value's last token left out", WAVE,
                 "rest(seen.end)", "rest(seen.end - 1)"),
    SourceMutant("pieces: masked as rows", SHAPE,
                 "result / 8 * 16 + 8 * half + result % 8",
                 "result / 4 * 8 + 4 * half + result % 4"),
    SourceMutant("pieces: an extent too short", ATTENTION_ROWS,
                 "+ 16 * rows.row_stride", ""),
    SourceMutant("parts: the same keys twice", WAVE,
                 "RowReader<KeyTile>::of(lane, first_key)", "RowReader<KeyTile>::of(lane)"),
    SourceMutant("parts: the mask of the whole tile", WAVE,
                 "last_key = last - first_key", "last_key = last"),
    SourceMutant("parts: a tile too few", PREFILL,
                 "visible.end(last) - part", "visible.end(last) - kTileKeys / 2"),
    SourceMutant("parts: a tile too many is whole", PREFILL,
                 "- Shape::kWaveKeys - part;", "- part;"),
    SourceMutant("parts: queries of one of them", QUERY,
                 "row = share.first_row + Share::row(", "row = Share::row("),
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
    SourceMutant("wide rows: fetches another row", SWIZZLE,
                 "lane / 32 * 8 + block", "lane / 32 + 2 * block"),
    SourceMutant("wide rows: fetches another chunk", SWIZZLE,
                 "lane % 32 ^ mix(copied_row(block, lane))", "lane % 32"),
    SourceMutant("wide rows: late keys are not awaited", WAVE, "kInFlight - kHeld", "kInFlight"),
    SourceMutant("wide codes: nor are those of an idle wave", WAVE,
                 "!Source::kScalar || kHeld > 0", "!Source::kScalar"),
    SourceMutant("wide codes: the same ones twice", WIDEN, "part + i, strides", "part, strides"),
    SourceMutant("wide codes: written to one place", WIDEN, "I * Layout::kPartBytes", "0"),
    SourceMutant("padded: a piece too many", COPY, "lane.id) >= end", "lane.id) > end"),
    SourceMutant("padded: a piece too few", COPY, "lane.id) >= end", "lane.id) >= end - 16"),
    SourceMutant("padded: stores all channels", EPILOGUE,
                 "kChannel, args.value_size, block", "kChannel, Shape::kHeadSize, block"),
    SourceMutant("padded: values as wide as keys", SHAPE,
                 "{args.head_size, args.value_size}", "{args.head_size, args.head_size}"),
)  # fmt: skip

CASES = (
    Case(lengths=((70, 330), (300, 300), (1, 1)), num_heads=9, num_kv_heads=3, block_size=48),
    Case(lengths=((60, 60), (70, 90)), num_heads=8, num_kv_heads=4, block_size=48),
    Case(lengths=((40, 1000),), num_heads=1, causal=False, magnitude=4.0, block_size=16),
    Case(lengths=((9, 20),), num_heads=16, num_kv_heads=4, before=600, causal=False),
    Case(lengths=((20, 700), (3, 0)), num_heads=1, magnitude=12.0),
)
WINDOWED = (
    Case(lengths=((200, 500), (70, 90), (3, 0)), num_kv_heads=2, sliding_window=100, sinks=True),
    Case(
        lengths=((5, 110), (40, 75)),
        num_heads=1,
        sliding_window=35,
        block_size=48,
        sinks=True,
        magnitude=12.0,
    ),
)
"""Besides, of kernels with windows and sinks."""
CAPPED = (
    Case(lengths=((70, 90),), logits_soft_cap=0.7),
    Case(lengths=((70, 90),), logits_soft_cap=1e-39, scale=0.0),
)
"""And of those with a soft cap."""
FLAGS = (*(flag for flag in build.FLAGS if flag != "-g"), "-Wno-error")
"""The same instructions, without the line tables: a third of the compiler's time."""


@cache
def launch(entry: KernelEntry, case: Case) -> Launch:
    return Launch(entry, case)


def changed(mutant: SourceMutant) -> str:
    """The mutant's file. Raises `ValueError` if the text to change does not occur once."""
    text = (build.ROOT / mutant.file).read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {mutant.old!r} occurs {text.count(mutant.old)} times")
    return text.replace(mutant.old, mutant.new)


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
        (folder / mutant.file).write_text(changed(mutant))
    output = folder / "mutant.co"
    tools.run("clang++", *FLAGS, "--offload-arch=gfx950", kernel, "-o", output, cwd=folder)
    return output.read_bytes()


def caught_by(entry: KernelEntry, code_object: bytes) -> str | None:
    """What shows that `code_object` is wrong; None if nothing does."""
    windowed = WINDOWED if entry.facts["mask"] in masks.WINDOWED else ()
    capped = CAPPED if entry.facts["mask"] == masks.CAPPED else ()
    for case in (*CASES, *windowed, *capped):
        outcome = launch(entry, case).run(code_object)
        if outcome.findings:
            return outcome.findings[0].check
        if not outcome.excess <= 1:
            return "wrong result"
        phases = outcome.report.counters.lds_phases.values()
        if any(taken > needed for taken, needed in phases):
            return "bank conflicts"
    return None
