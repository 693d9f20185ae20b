// Opcodes of VOP3P-MAI: matrix instructions and moves to and from AGPRs.
//
// See opcodes.hpp for the notation. Types count the elements of one lane. D and C: a block's
// elements divided by 64. A and B: K divided by the number of lane groups (4, 2 or 1).
#include "isa/opcodes.hpp"

namespace hk::emulator {
namespace {

constexpr Row kDense[] = {
    {0x2d, "v_mfma_f32_16x16x128_f8f6f4", "f32x4=b32x8,b32x8,f32x4", kGfx950},
    {0x2e, "v_mfma_f32_32x32x64_f8f6f4", "f32x16=b32x8,b32x8,f32x16", kGfx950},
    {0x35, "v_mfma_f32_16x16x32_bf16", "f32x4=bf16x8,bf16x8,f32x4", kGfx950},
    {0x36, "v_mfma_i32_16x16x64_i8", "i32x4=i8x16,i8x16,i32x4", kGfx950},
    {0x37, "v_mfma_f32_32x32x16_bf16", "f32x16=bf16x8,bf16x8,f32x16", kGfx950},
    {0x38, "v_mfma_i32_32x32x32_i8", "i32x16=i8x16,i8x16,i32x16", kGfx950},
    {0x3e, "v_mfma_f32_16x16x8_xf32", "f32x4=f32x2,f32x2,f32x4", kGfx942},
    {0x3f, "v_mfma_f32_32x32x4_xf32", "f32x16=f32x2,f32x2,f32x16", kGfx942},
    {0x40, "v_mfma_f32_32x32x1_2b_f32", "f32x32=f32,f32,f32x32"},
    {0x41, "v_mfma_f32_16x16x1_4b_f32", "f32x16=f32,f32,f32x16"},
    {0x42, "v_mfma_f32_4x4x1_16b_f32", "f32x4=f32,f32,f32x4"},
    {0x44, "v_mfma_f32_32x32x2_f32", "f32x16=f32,f32,f32x16"},
    {0x45, "v_mfma_f32_16x16x4_f32", "f32x4=f32,f32,f32x4"},
    {0x48, "v_mfma_f32_32x32x4_2b_f16", "f32x32=f16x4,f16x4,f32x32"},
    {0x49, "v_mfma_f32_16x16x4_4b_f16", "f32x16=f16x4,f16x4,f32x16"},
    {0x4a, "v_mfma_f32_4x4x4_16b_f16", "f32x4=f16x4,f16x4,f32x4"},
    {0x4c, "v_mfma_f32_32x32x8_f16", "f32x16=f16x4,f16x4,f32x16"},
    {0x4d, "v_mfma_f32_16x16x16_f16", "f32x4=f16x4,f16x4,f32x4"},
    {0x50, "v_mfma_i32_32x32x4_2b_i8", "i32x32=i8x4,i8x4,i32x32"},
    {0x51, "v_mfma_i32_16x16x4_4b_i8", "i32x16=i8x4,i8x4,i32x16"},
    {0x52, "v_mfma_i32_4x4x4_16b_i8", "i32x4=i8x4,i8x4,i32x4"},
    {0x54, "v_mfma_f32_16x16x32_f16", "f32x4=f16x8,f16x8,f32x4", kGfx950},
    {0x55, "v_mfma_f32_32x32x16_f16", "f32x16=f16x8,f16x8,f32x16", kGfx950},
    {0x56, "v_mfma_i32_32x32x16_i8", "i32x16=i8x8,i8x8,i32x16"},
    {0x57, "v_mfma_i32_16x16x32_i8", "i32x4=i8x8,i8x8,i32x4"},
    {0x5d, "v_mfma_f32_32x32x4_2b_bf16", "f32x32=bf16x4,bf16x4,f32x32"},
    {0x5e, "v_mfma_f32_16x16x4_4b_bf16", "f32x16=bf16x4,bf16x4,f32x16"},
    {0x5f, "v_mfma_f32_4x4x4_16b_bf16", "f32x4=bf16x4,bf16x4,f32x4"},
    {0x60, "v_mfma_f32_32x32x8_bf16", "f32x16=bf16x4,bf16x4,f32x16"},
    {0x61, "v_mfma_f32_16x16x16_bf16", "f32x4=bf16x4,bf16x4,f32x4"},
    {0x6e, "v_mfma_f64_16x16x4_f64", "f64x4=f64,f64,f64x4"},
    {0x6f, "v_mfma_f64_4x4x4_4b_f64", "f64=f64,f64,f64"},
    {0x70, "v_mfma_f32_16x16x32_bf8_bf8", "f32x4=bf8x8,bf8x8,f32x4"},
    {0x71, "v_mfma_f32_16x16x32_bf8_fp8", "f32x4=bf8x8,fp8x8,f32x4"},
    {0x72, "v_mfma_f32_16x16x32_fp8_bf8", "f32x4=fp8x8,bf8x8,f32x4"},
    {0x73, "v_mfma_f32_16x16x32_fp8_fp8", "f32x4=fp8x8,fp8x8,f32x4"},
    {0x74, "v_mfma_f32_32x32x16_bf8_bf8", "f32x16=bf8x8,bf8x8,f32x16"},
    {0x75, "v_mfma_f32_32x32x16_bf8_fp8", "f32x16=bf8x8,fp8x8,f32x16"},
    {0x76, "v_mfma_f32_32x32x16_fp8_bf8", "f32x16=fp8x8,bf8x8,f32x16"},
    {0x77, "v_mfma_f32_32x32x16_fp8_fp8", "f32x16=fp8x8,fp8x8,f32x16"},
};

// Opcodes whose A is 4:2 sparse, with indices in the third source.
constexpr Row kSparse[] = {
    {0x39, "v_smfmac_f32_16x16x64_bf16", "f32x4=bf16x8,bf16x16,b32,@", kGfx950},
    {0x3a, "v_smfmac_i32_16x16x128_i8", "i32x4=i8x16,i8x32,b32,@", kGfx950},
    {0x3b, "v_smfmac_f32_16x16x128_bf8_bf8", "f32x4=bf8x16,bf8x32,b32,@", kGfx950},
    {0x3c, "v_smfmac_f32_16x16x128_bf8_fp8", "f32x4=bf8x16,fp8x32,b32,@", kGfx950},
    {0x3d, "v_smfmac_f32_16x16x128_fp8_bf8", "f32x4=fp8x16,bf8x32,b32,@", kGfx950},
    {0x43, "v_smfmac_f32_16x16x128_fp8_fp8", "f32x4=fp8x16,fp8x32,b32,@", kGfx950},
    {0x46, "v_smfmac_f32_32x32x32_bf16", "f32x16=bf16x8,bf16x16,b32,@", kGfx950},
    {0x47, "v_smfmac_i32_32x32x64_i8", "i32x16=i8x16,i8x32,b32,@", kGfx950},
    {0x4b, "v_smfmac_f32_32x32x64_bf8_bf8", "f32x16=bf8x16,bf8x32,b32,@", kGfx950},
    {0x4e, "v_smfmac_f32_32x32x64_bf8_fp8", "f32x16=bf8x16,fp8x32,b32,@", kGfx950},
    {0x4f, "v_smfmac_f32_32x32x64_fp8_bf8", "f32x16=fp8x16,bf8x32,b32,@", kGfx950},
    {0x53, "v_smfmac_f32_32x32x64_fp8_fp8", "f32x16=fp8x16,fp8x32,b32,@", kGfx950},
    {0x5a, "v_smfmac_f32_16x16x64_f16", "f32x4=f16x8,f16x16,b32,@", kGfx950},
    {0x5b, "v_smfmac_f32_32x32x32_f16", "f32x16=f16x8,f16x16,b32,@", kGfx950},
    {0x62, "v_smfmac_f32_16x16x32_f16", "f32x4=f16x4,f16x8,b32,@"},
    {0x64, "v_smfmac_f32_32x32x16_f16", "f32x16=f16x4,f16x8,b32,@"},
    {0x66, "v_smfmac_f32_16x16x32_bf16", "f32x4=bf16x4,bf16x8,b32,@"},
    {0x68, "v_smfmac_f32_32x32x16_bf16", "f32x16=bf16x4,bf16x8,b32,@"},
    {0x6a, "v_smfmac_i32_16x16x64_i8", "i32x4=i8x8,i8x16,b32,@"},
    {0x6c, "v_smfmac_i32_32x32x32_i8", "i32x16=i8x8,i8x16,b32,@"},
    {0x78, "v_smfmac_f32_16x16x64_bf8_bf8", "f32x4=bf8x8,bf8x16,b32,@"},
    {0x79, "v_smfmac_f32_16x16x64_bf8_fp8", "f32x4=bf8x8,fp8x16,b32,@"},
    {0x7a, "v_smfmac_f32_16x16x64_fp8_bf8", "f32x4=fp8x8,bf8x16,b32,@"},
    {0x7b, "v_smfmac_f32_16x16x64_fp8_fp8", "f32x4=fp8x8,fp8x16,b32,@"},
    {0x7c, "v_smfmac_f32_32x32x32_bf8_bf8", "f32x16=bf8x8,bf8x16,b32,@"},
    {0x7d, "v_smfmac_f32_32x32x32_bf8_fp8", "f32x16=bf8x8,fp8x16,b32,@"},
    {0x7e, "v_smfmac_f32_32x32x32_fp8_bf8", "f32x16=fp8x8,bf8x16,b32,@"},
    {0x7f, "v_smfmac_f32_32x32x32_fp8_fp8", "f32x16=fp8x8,fp8x16,b32,@"},
};

// Opcodes of the second half of a 16-byte pair; the first half names the scales of A and B.
constexpr Row kScaled[] = {
    {0x2d, "v_mfma_scale_f32_16x16x128_f8f6f4", "f32x4=b32x8,b32x8,f32x4,b32,b32", kGfx950},
    {0x2e, "v_mfma_scale_f32_32x32x64_f8f6f4", "f32x16=b32x8,b32x8,f32x16,b32,b32", kGfx950},
};

constexpr Row kMoves[] = {
    {0x58, "v_accvgpr_read_b32", "v32=a32"},
    {0x59, "v_accvgpr_write_b32", "a32=b32"},
};

constexpr Rows kRows[] = {
    {Format::mfma, Class::matrix, kDense},
    {Format::mfma, Class::matrix, kSparse},
    {Format::scaled_mfma, Class::matrix, kScaled},
    {Format::mfma, Class::valu, kMoves},
};

}  // namespace

std::span<const Rows> matrix_rows() { return kRows; }

}  // namespace hk::emulator
