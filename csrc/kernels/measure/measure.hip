// Kernels that measure what a timing model of the GPU has to know, one for each number. See
// hk/args/measure.hpp for the argument; hk_backend/lab/timing/measurements.py says what follows from
// each kernel's clocks.
//
//   set up | all waves meet; those that take no part end
//   read the clock
//   steps times:  straight-line code, `repeats` times the measured thing
//   wait for all of it | read the clock | write record and result
//
// Choices:
//   - Inline assembly, volatile: the text is what is measured, in this order.
//   - Which waves take part is an argument: alone, one on each SIMD, two on one SIMD.
//   - Loops are unrolled to 512 bytes or so: a branch in 64 does not matter, the instruction cache
//     holds it. What surrounds the loop is in every launch alike and falls out of the difference.
//   - What only gfx950 has is in measure_gfx950.hip.
#include "chain.hpp"
#include "consumed.hpp"
#include "control.hpp"
#include "lds.hpp"
#include "memory.hpp"

HK_ARCHES(gfx942, gfx950);

namespace hk::measure {

SUM(Bf16_16, 4, 2, 2, "v_mfma_f32_16x16x16_bf16");
SUM(Bf16_32, 16, 2, 2, "v_mfma_f32_32x32x8_bf16");
SUM(F16_16, 4, 2, 2, "v_mfma_f32_16x16x16_f16");
SUM(F16_32, 16, 2, 2, "v_mfma_f32_32x32x8_f16");
SUM(Fp8_16, 4, 2, 2, "v_mfma_f32_16x16x32_fp8_fp8");
SUM(Fp8_32, 16, 2, 2, "v_mfma_f32_32x32x16_fp8_fp8");
SUM(I8_16, 4, 2, 2, "v_mfma_i32_16x16x32_i8");
SUM(I8_32, 16, 2, 2, "v_mfma_i32_32x32x16_i8");
SUM(F32_16, 4, 1, 1, "v_mfma_f32_16x16x4_f32");
SUM(F32_32, 16, 1, 1, "v_mfma_f32_32x32x2_f32");

SUM(FmaF32, 1, 1, 1, "v_fma_f32");
SUM(PackedFmaF32, 2, 2, 2, "v_pk_fma_f32");
SUM(PackedFmaF16, 1, 1, 1, "v_pk_fma_f16");
SUM(FmaF64, 2, 2, 2, "v_fma_f64");
INSTRUCTION(MultiplyI32, 1, 1, 1, "v_mul_lo_u32", "", ", %[a]");
INSTRUCTION(Swap, 1, 1, 1, "v_swap_b32", "", "");
INSTRUCTION(Exp, 1, 1, 1, "v_exp_f32", "", "");

}  // namespace hk::measure

// Kernels of two works come first: where one before them has one of the works, the compiler inlines
// in another order, and their code would depend on that of others.
MEASURE(priority, Pair<Prioritised<Independent<FmaF32>, 3>, Independent<FmaF32>>);
MEASURE(mfma_beside_vector, Pair<Independent<Bf16_16>, Chain<FmaF32, 4, 256>>);

MEASURE(mfma_bf16_16x16x16_dependent, Dependent<Bf16_16>);
MEASURE(mfma_bf16_16x16x16_independent, Independent<Bf16_16>);
MEASURE(mfma_bf16_32x32x8_dependent, Dependent<Bf16_32>);
MEASURE(mfma_bf16_32x32x8_independent, Independent<Bf16_32>);
MEASURE(mfma_f16_16x16x16_dependent, Dependent<F16_16>);
MEASURE(mfma_f16_16x16x16_independent, Independent<F16_16>);
MEASURE(mfma_f16_32x32x8_dependent, Dependent<F16_32>);
MEASURE(mfma_f16_32x32x8_independent, Independent<F16_32>);
MEASURE(mfma_fp8_16x16x32_dependent, Dependent<Fp8_16>);
MEASURE(mfma_fp8_16x16x32_independent, Independent<Fp8_16>);
MEASURE(mfma_fp8_32x32x16_dependent, Dependent<Fp8_32>);
MEASURE(mfma_fp8_32x32x16_independent, Independent<Fp8_32>);
MEASURE(mfma_i8_16x16x32_dependent, Dependent<I8_16>);
MEASURE(mfma_i8_16x16x32_independent, Independent<I8_16>);
MEASURE(mfma_i8_32x32x16_dependent, Dependent<I8_32>);
MEASURE(mfma_i8_32x32x16_independent, Independent<I8_32>);
MEASURE(mfma_f32_16x16x4_dependent, Dependent<F32_16>);
MEASURE(mfma_f32_16x16x4_independent, Independent<F32_16>);
MEASURE(mfma_f32_32x32x2_dependent, Dependent<F32_32>);
MEASURE(mfma_f32_32x32x2_independent, Independent<F32_32>);
MEASURE(mfma_then_vector, ConsumedByVector);
MEASURE(mfma_then_operand, ConsumedAsOperand);

MEASURE(fma_f32_dependent, Dependent<FmaF32>);
MEASURE(fma_f32_independent, Independent<FmaF32>);
MEASURE(fma_f32_packed_dependent, Dependent<PackedFmaF32>);
MEASURE(fma_f32_packed_independent, Independent<PackedFmaF32>);
MEASURE(fma_f16_packed_dependent, Dependent<PackedFmaF16>);
MEASURE(fma_f16_packed_independent, Independent<PackedFmaF16>);
MEASURE(fma_f64_dependent, Dependent<FmaF64>);
MEASURE(fma_f64_independent, Independent<FmaF64>);
MEASURE(multiply_i32_dependent, Dependent<MultiplyI32>);
MEASURE(multiply_i32_independent, Independent<MultiplyI32>);
MEASURE(swap_b32_dependent, Dependent<Swap>);
MEASURE(swap_b32_independent, Independent<Swap>);
MEASURE(exp_f32_dependent, Dependent<Exp>);
MEASURE(exp_f32_independent, Independent<Exp>);

MEASURE_LDS(lds_read_b32, Pipe<Read32>);
MEASURE_LDS(lds_read_b64, Pipe<Read64>);
MEASURE_LDS(lds_read_b128, Pipe<Read128>);
MEASURE_LDS(lds_write_b32, Pipe<Write32>);
MEASURE_LDS(lds_write_b64, Pipe<Write64>);
MEASURE_LDS(lds_write_b128, Pipe<Write128>);
MEASURE_LDS(lds_latency, Chase<FollowLds>);

MEASURE_WITH(copy_to_lds, 8, CopyToLds::kLdsBytes, Pipe<CopyToLds>);
MEASURE(memory_read, Pipe<ReadMemory>);
MEASURE(memory_write, Pipe<WriteMemory>);
MEASURE(memory_copy, Pipe<CopyMemory>);
MEASURE(memory_latency, Chase<FollowMemory>);
MEASURE(scalar_latency, Chase<FollowScalar>);

MEASURE(s_add, ScalarAdd);
MEASURE(s_nop_0, Nop<0>);
MEASURE(s_nop_1, Nop<1>);
MEASURE(s_nop_7, Nop<7>);
MEASURE(s_nop_15, Nop<15>);
MEASURE(branch, Branch);
MEASURE_WITH(barrier_2, 2, 0, Barrier);
MEASURE_WITH(barrier_4, 4, 0, Barrier);
MEASURE_WITH(barrier_8, 8, 0, Barrier);
MEASURE_WITH(nothing, 1, 0, Nothing);
MEASURE_WITH(whole_lds_1, 1, arch::kLdsBytes, Nothing);
MEASURE_WITH(whole_lds_8, 8, arch::kLdsBytes, Nothing);
