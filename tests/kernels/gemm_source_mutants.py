"""Mutants of the gemm kernels' sources, by hand (source_mutants.py)."""

from __future__ import annotations

from tests.kernels.source_mutants import SourceMutant

WAVE = "csrc/kernels/gemm/wave.hpp"
STREAM = "csrc/kernels/gemm/stream.hpp"
SPLIT = "csrc/kernels/gemm/split.hpp"
WORKGROUP = "csrc/kernels/gemm/workgroup.hpp"
EPILOGUE = "csrc/kernels/gemm/epilogue.hpp"
DEEP = "csrc/kernels/gemm/deep_wave.hpp"
SCALES = "csrc/kernels/gemm/scales.hpp"

PROLOGUE = """\
      wait_copies<(Shape::kStages - 1) * kCopies>();
      barrier();
"""
NEXT_STEP = """\
        wait_copies<(Shape::kStages - 2) * kCopies>();
        barrier();
"""
WIDE_MUTANTS = (
    SourceMutant("first step: no barrier", WAVE,
                 PROLOGUE, PROLOGUE.replace("      barrier();\n", "")),
    SourceMutant("first step: no wait", WAVE, PROLOGUE, "      barrier();\n"),
    SourceMutant("first step: waits for a copy less", WAVE,
                 PROLOGUE, PROLOGUE.replace("kCopies>", "kCopies + 1>")),
    SourceMutant("prologue: copies all steps to the same tile", WAVE,
                 "start_copy<copy>(a_.ring.tile(i), w_.ring.tile(i))",
                 "start_copy<copy>(a_.ring.tile(0), w_.ring.tile(i))"),
    SourceMutant("loop: no barrier before the copies", WAVE,
                 NEXT_STEP, NEXT_STEP.replace("        barrier();\n", "")),
    SourceMutant("loop: waits for a step less", WAVE,
                 "wait_copies<(Shape::kStages - 2)", "wait_copies<(Shape::kStages - 1)"),
    SourceMutant("loop: waits for a copy less", WAVE,
                 NEXT_STEP, NEXT_STEP.replace("kCopies>", "kCopies + 1>")),
    SourceMutant("loop: copies to the next step's tile", WAVE,
                 "start_copy<copy>(free_a, free_w)", "start_copy<copy>(a_.ring.tile(), free_w)"),
    SourceMutant("loop: a part twice", WAVE, "kEnds ? 0 : part + 1", "kEnds ? 0 : part"),
    SourceMutant("end: copies in flight", WAVE,
                 "    wait_copies<0>();  // those past", "    // those past"),
    SourceMutant("tail: no mask", WAVE, "if constexpr (kLast) mask_past", "if (0) mask_past"),
    SourceMutant("tail: two bytes too many", STREAM,
                 "const i32 kept = bytes -", "const i32 kept = bytes + 2 -"),
    SourceMutant("tail: two bytes too few", STREAM,
                 "const i32 kept = bytes -", "const i32 kept = bytes - 2 -"),
    SourceMutant("tail: parts that it begins in are whole", STREAM,
                 "keep<32 * Pieces>", "keep<1>"),
    SourceMutant("tail: the mask of the first part", WAVE,
                 "bytes - part * 32 * Format::kPiecesA", "bytes"),
    SourceMutant("activations: past the last row's end", STREAM,
                 "row_bytes(args) - used + start, span.bytes", "start, span.bytes"),
    SourceMutant("weights: a group too many", STREAM,
                 "span.bytes = groups * group_bytes", "span.bytes = (groups + 1) * group_bytes"),
    SourceMutant("split: not released", SPLIT,
                 '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");', ""),
    SourceMutant("split: not acquired", SPLIT,
                 'if (last) __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");', ""),
    SourceMutant("split: counted before all waves have stored", SPLIT,
                 "  barrier();\n  auto* before", "  auto* before"),
    SourceMutant("split: the last but one adds up", SPLIT, "== splits - 1", "== splits - 2"),
    SourceMutant("split: one is left out", SPLIT,
                 "i + j < args.splits ?", "i + j < args.splits - 1 ?"),
    SourceMutant("split: the counter is left", SPLIT,
                 "if (wave == 0 && lane.id == 0) *arrived = 0;", ""),
    SourceMutant("split: steps of the next one, too", WORKGROUP,
                 "min(share, steps - first)", "min(share + 1, steps - first)"),
    SourceMutant("split: the first one's steps", WORKGROUP,
                 "const i32 first = split * share", "const i32 first = 0 * share"),
    SourceMutant("scales: of the first columns", EPILOGUE,
                 "view_from<f32>(args_.b_scale, args_.n, column)",
                 "view_from<f32>(args_.b_scale, args_.n, 0)"),
    SourceMutant("bias: of the first columns", EPILOGUE,
                 "view_from<T>(values, args_.n, column)", "view_from<T>(values, args_.n, 0)"),
    SourceMutant("c: a row too many", EPILOGUE,
                 "left * row_bytes)", "(left + 1) * row_bytes)"),
)  # fmt: skip
"""Of kernels whose waves have a part of the tile each."""
DEEP_MUTANTS = (
    SourceMutant("first step: waits for a step less", DEEP,
                 "wait_step<kAhead - 1>();", "wait_step<kAhead>();"),
    SourceMutant("loop: waits for a step less", DEEP,
                 "wait_step<kAhead - 2>();", "wait_step<kAhead - 1>();"),
    SourceMutant("last round: waits for a step less", DEEP,
                 "wait_step<kAhead - 1 - Stage>();", "wait_step<kAhead - Stage>();"),
    SourceMutant("loop: the steps of the next wave", DEEP,
                 "w_(args, column, first_step + wave, lane)", "w_(args, column, first_step, lane)"),
    SourceMutant("tail: no mask", DEEP, "if constexpr (kLast) mask_past", "if (0) mask_past"),
    SourceMutant("weights: a group too many", DEEP,
                 "span.bytes = groups * group_bytes", "span.bytes = (groups + 1) * group_bytes"),
    SourceMutant("weights: of the columns beside", DEEP,
                 "lane.col % 16 * 16;", "lane.col % 8 * 16;"),
    SourceMutant("sums: written where others still read", DEEP,
                 "lds + of * Shape::kWaveBytes", "lds + (of ^ 1) * Shape::kWaveBytes"),
    SourceMutant("sums: read before they are written", DEEP, "  synchronize();\n", ""),
    SourceMutant("sums: one wave's is left out", DEEP,
                 "static_for<1, Shape::kWaves>(", "static_for<2, Shape::kWaves>("),
    SourceMutant("end: copies in flight", DEEP,
                 "    wait_copies<0>();  // those", "    // those"),
)  # fmt: skip
"""Of kernels whose waves share the depth."""
SCALES_MUTANTS = (
    SourceMutant("activations: of the first step", SCALES,
                 "advance(rows_, step_bytes_);", ""),
    SourceMutant("weights: of the first step", SCALES,
                 "weights_ += weights_are_scaled_ ? Shape::kNextStep * sizeof(f32) : 0;", ""),
    SourceMutant("weights: of the first columns", SCALES, "min(column / kScaleBlock", "min(0"),
    SourceMutant("those of the next step", SCALES,
                 "slot_ + Copy * arch::kLanes * sizeof(f32)", "Copy * arch::kLanes * sizeof(f32)"),
    SourceMutant("last steps: the scales of one", DEEP, "scales_.pass();", ";"),
    SourceMutant("the last step's sums are left out", SCALES,
                 "add(total.block[column][row], sums_.block[column][row], factor_[row]);", ""),
    SourceMutant("activations: past the last one", SCALES,
                 "(last - first + 1)", "(last - first + 2)"),
)  # fmt: skip
"""Of kernels with scales of blocks."""
