// The measurements of measure.hip for instructions that gfx950 alone has.
#include "chain.hpp"
#include "lds.hpp"

HK_ARCHES(gfx950);

namespace hk::measure {

SUM(Bf16_16, 4, 4, 4, "v_mfma_f32_16x16x32_bf16");
SUM(Bf16_32, 16, 4, 4, "v_mfma_f32_32x32x16_bf16");
SUM(F16_16, 4, 4, 4, "v_mfma_f32_16x16x32_f16");
SUM(F16_32, 16, 4, 4, "v_mfma_f32_32x32x16_f16");
SUM(I8_16, 4, 4, 4, "v_mfma_i32_16x16x64_i8");
SUM(I8_32, 16, 4, 4, "v_mfma_i32_32x32x32_i8");

// Instructions with a format for either operand: cbsz and blgp (CDNA4 ISA guide,
// "V_MFMA_F32_16X16X128_F8F6F4").
#define F8F6F4_16 "v_mfma_f32_16x16x128_f8f6f4"
#define F8F6F4_32 "v_mfma_f32_32x32x64_f8f6f4"
SUM(Mx8_16, 4, 8, 8, F8F6F4_16);
SUM(Mx8_32, 16, 8, 8, F8F6F4_32);
SUM(Mx6_16, 4, 6, 6, F8F6F4_16, " cbsz:2 blgp:2");
SUM(Mx6_32, 16, 6, 6, F8F6F4_32, " cbsz:2 blgp:2");
SUM(Mx4_16, 4, 4, 4, F8F6F4_16, " cbsz:4 blgp:4");
SUM(Mx4_32, 16, 4, 4, F8F6F4_32, " cbsz:4 blgp:4");
SUM(Mx84_16, 4, 8, 4, F8F6F4_16, " blgp:4");
SUM(Mx84_32, 16, 8, 4, F8F6F4_32, " blgp:4");

// Instructions with block scales.
#define SCALED_16 "v_mfma_scale_f32_16x16x128_f8f6f4"
#define SCALED_32 "v_mfma_scale_f32_32x32x64_f8f6f4"
SUM(Scaled8_16, 4, 8, 8, SCALED_16, ", %[scale], %[scale]");
SUM(Scaled8_32, 16, 8, 8, SCALED_32, ", %[scale], %[scale]");
SUM(Scaled4_16, 4, 4, 4, SCALED_16, ", %[scale], %[scale] cbsz:4 blgp:4");
SUM(Scaled4_32, 16, 4, 4, SCALED_32, ", %[scale], %[scale] cbsz:4 blgp:4");

LDS_READ(ReadTransposed, 2, "ds_read_b64_tr_b16 %0, %1");

}  // namespace hk::measure

MEASURE(mfma_bf16_16x16x32_dependent, Dependent<Bf16_16>);
MEASURE(mfma_bf16_16x16x32_independent, Independent<Bf16_16>);
MEASURE(mfma_bf16_32x32x16_dependent, Dependent<Bf16_32>);
MEASURE(mfma_bf16_32x32x16_independent, Independent<Bf16_32>);
MEASURE(mfma_f16_16x16x32_dependent, Dependent<F16_16>);
MEASURE(mfma_f16_16x16x32_independent, Independent<F16_16>);
MEASURE(mfma_f16_32x32x16_dependent, Dependent<F16_32>);
MEASURE(mfma_f16_32x32x16_independent, Independent<F16_32>);
MEASURE(mfma_i8_16x16x64_dependent, Dependent<I8_16>);
MEASURE(mfma_i8_16x16x64_independent, Independent<I8_16>);
MEASURE(mfma_i8_32x32x32_dependent, Dependent<I8_32>);
MEASURE(mfma_i8_32x32x32_independent, Independent<I8_32>);
MEASURE(mfma_fp8_16x16x128_dependent, Dependent<Mx8_16>);
MEASURE(mfma_fp8_16x16x128_independent, Independent<Mx8_16>);
MEASURE(mfma_fp8_32x32x64_dependent, Dependent<Mx8_32>);
MEASURE(mfma_fp8_32x32x64_independent, Independent<Mx8_32>);
MEASURE(mfma_fp6_16x16x128_dependent, Dependent<Mx6_16>);
MEASURE(mfma_fp6_16x16x128_independent, Independent<Mx6_16>);
MEASURE(mfma_fp6_32x32x64_dependent, Dependent<Mx6_32>);
MEASURE(mfma_fp6_32x32x64_independent, Independent<Mx6_32>);
MEASURE(mfma_fp4_16x16x128_dependent, Dependent<Mx4_16>);
MEASURE(mfma_fp4_16x16x128_independent, Independent<Mx4_16>);
MEASURE(mfma_fp4_32x32x64_dependent, Dependent<Mx4_32>);
MEASURE(mfma_fp4_32x32x64_independent, Independent<Mx4_32>);
MEASURE(mfma_fp8_fp4_16x16x128_dependent, Dependent<Mx84_16>);
MEASURE(mfma_fp8_fp4_16x16x128_independent, Independent<Mx84_16>);
MEASURE(mfma_fp8_fp4_32x32x64_dependent, Dependent<Mx84_32>);
MEASURE(mfma_fp8_fp4_32x32x64_independent, Independent<Mx84_32>);
MEASURE(mfma_mxfp8_16x16x128_dependent, Dependent<Scaled8_16>);
MEASURE(mfma_mxfp8_16x16x128_independent, Independent<Scaled8_16>);
MEASURE(mfma_mxfp8_32x32x64_dependent, Dependent<Scaled8_32>);
MEASURE(mfma_mxfp8_32x32x64_independent, Independent<Scaled8_32>);
MEASURE(mfma_mxfp4_16x16x128_dependent, Dependent<Scaled4_16>);
MEASURE(mfma_mxfp4_16x16x128_independent, Independent<Scaled4_16>);
MEASURE(mfma_mxfp4_32x32x64_dependent, Dependent<Scaled4_32>);
MEASURE(mfma_mxfp4_32x32x64_independent, Independent<Scaled4_32>);

MEASURE_LDS(lds_read_b64_transposed, Pipe<ReadTransposed>);
