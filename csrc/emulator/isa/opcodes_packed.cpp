// Opcodes of VOP3P: two elements per lane at a time, dot products, mixed-precision FMA.
//
// See opcodes.hpp for the notation.
#include "isa/opcodes.hpp"

namespace hk::emulator {
namespace {

constexpr Row kVop3p[] = {
    {0x00, "v_pk_mad_i16", "i16x2=i16x2,i16x2,i16x2"},
    {0x01, "v_pk_mul_lo_u16", "u16x2=u16x2,u16x2"},
    {0x02, "v_pk_add_i16", "i16x2=i16x2,i16x2"},
    {0x03, "v_pk_sub_i16", "i16x2=i16x2,i16x2"},
    {0x04, "v_pk_lshlrev_b16", "b16x2=b16x2,b16x2"},
    {0x05, "v_pk_lshrrev_b16", "b16x2=b16x2,b16x2"},
    {0x06, "v_pk_ashrrev_i16", "i16x2=i16x2,i16x2"},
    {0x07, "v_pk_max_i16", "i16x2=i16x2,i16x2"},
    {0x08, "v_pk_min_i16", "i16x2=i16x2,i16x2"},
    {0x09, "v_pk_mad_u16", "u16x2=u16x2,u16x2,u16x2"},
    {0x0a, "v_pk_add_u16", "u16x2=u16x2,u16x2"},
    {0x0b, "v_pk_sub_u16", "u16x2=u16x2,u16x2"},
    {0x0c, "v_pk_max_u16", "u16x2=u16x2,u16x2"},
    {0x0d, "v_pk_min_u16", "u16x2=u16x2,u16x2"},
    {0x0e, "v_pk_fma_f16", "f16x2=f16x2,f16x2,f16x2"},
    {0x0f, "v_pk_add_f16", "f16x2=f16x2,f16x2"},
    {0x10, "v_pk_mul_f16", "f16x2=f16x2,f16x2"},
    {0x11, "v_pk_min_f16", "f16x2=f16x2,f16x2"},
    {0x12, "v_pk_max_f16", "f16x2=f16x2,f16x2"},
    {0x1a, "v_dot2_f32_bf16", "f32=bf16x2,bf16x2,f32", kGfx950},
    {0x1b, "v_pk_minimum3_f16", "f16x2=f16x2,f16x2,f16x2", kGfx950},
    {0x1c, "v_pk_maximum3_f16", "f16x2=f16x2,f16x2,f16x2", kGfx950},
    {0x20, "v_fma_mix_f32", "f32=f32,f32,f32"},
    {0x21, "v_fma_mixlo_f16", "f16=f32,f32,f32"},
    {0x22, "v_fma_mixhi_f16", "f16=f32,f32,f32"},
    {0x23, "v_dot2_f32_f16", "f32=f16x2,f16x2,f32"},
    {0x26, "v_dot2_i32_i16", "i32=i16x2,i16x2,i32"},
    {0x27, "v_dot2_u32_u16", "u32=u16x2,u16x2,u32"},
    {0x28, "v_dot4_i32_i8", "i32=b32,b32,i32"},
    {0x29, "v_dot4_u32_u8", "u32=b32,b32,u32"},
    {0x2a, "v_dot8_i32_i4", "i32=b32,b32,i32"},
    {0x2b, "v_dot8_u32_u4", "u32=b32,b32,u32"},
    {0x30, "v_pk_fma_f32", "f32x2=f32x2,f32x2,f32x2"},
    {0x31, "v_pk_mul_f32", "f32x2=f32x2,f32x2"},
    {0x32, "v_pk_add_f32", "f32x2=f32x2,f32x2"},
    {0x33, "v_pk_mov_b32", "b32x2=b32x2,b32x2"},
};

constexpr Rows kRows[] = {
    {Format::vop3p, Class::valu, kVop3p},
};

}  // namespace

std::span<const Rows> packed_rows() { return kRows; }

}  // namespace hk::emulator
