// Prefill attention with heads of 256 channels: what attention_prefill.hip computes, with windows
// and sinks (attention_window.hip) or without, or of a part of the keys (attention_part.hip).
//
// A row's O takes 128 registers and Q another 64: one wave on each SIMD, with the registers of two.
// So a workgroup is 4 waves of 32 rows, and a tile 32 keys: a step has the slots that it has at
// d=128, 16 of one block of scores, then 16 of O.
//
// Choices:
//   - No other wave fills the matrix unit's time, so an instruction less is 4 clocks less. Q lies
//     in accumulation registers, from where the matrix unit takes it: else 11 of its 16 fragments
//     would be moved in each step. Copies are apart, in slots without a wait (CopySlots).
//   - The matrix unit needs 1024 clocks for a step; 4 waves reading K and V, and the copies, need
//     as many of the LDS. So half of the waves run half a step behind (PingPong), though none share
//     a SIMD: while some read V, which takes twice as long, the others read K. By model 5%.
//   - What is left (by llvm-mca 1152 clocks a step, by the clock 1227) is instructions: about 270.
//   - A tile is one block of keys, of which late waves copy the second half: early ones read it at
//     once, so it lands a barrier earlier than at d=128 (kHeld).
//   - Tiles of 64 keys would leave room for two stages, and need no instruction less.
//   - No blocks of any size, and no fewer rows than 128 for short prompts: neither was built.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(256, 128, All, packed(88), paged(84), tokens(85), split(86));
ATTENTION_PREFILL(256, 128, Window, packed(88), paged(84), tokens(85), split(86));
ATTENTION_PREFILL(256, 128, Part, packed(88), paged(84), tokens(85), split(86));
