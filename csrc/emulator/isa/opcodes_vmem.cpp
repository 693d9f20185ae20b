// Opcodes of MUBUF and the FLAT family: global, scratch and generic memory.
//
// See opcodes.hpp for the notation.
#include "isa/opcodes.hpp"

namespace hk::emulator {
namespace {

constexpr Row kMubufLoads[] = {
    {0x10, "buffer_load_ubyte", "b8="},      {0x11, "buffer_load_sbyte", "b8="},
    {0x12, "buffer_load_ushort", "b16="},    {0x13, "buffer_load_sshort", "b16="},
    {0x14, "buffer_load_dword", "b32="},     {0x15, "buffer_load_dwordx2", "b64="},
    {0x16, "buffer_load_dwordx3", "b96="},   {0x17, "buffer_load_dwordx4", "b128="},
    {0x20, "buffer_load_ubyte_d16", "b8="},  {0x21, "buffer_load_ubyte_d16_hi", "b8="},
    {0x22, "buffer_load_sbyte_d16", "b8="},  {0x23, "buffer_load_sbyte_d16_hi", "b8="},
    {0x24, "buffer_load_short_d16", "b16="}, {0x25, "buffer_load_short_d16_hi", "b16="},
};

constexpr Row kMubufStores[] = {
    {0x18, "buffer_store_byte", "=b8"},     {0x19, "buffer_store_byte_d16_hi", "=b8"},
    {0x1a, "buffer_store_short", "=b16"},   {0x1b, "buffer_store_short_d16_hi", "=b16"},
    {0x1c, "buffer_store_dword", "=b32"},   {0x1d, "buffer_store_dwordx2", "=b64"},
    {0x1e, "buffer_store_dwordx3", "=b96"}, {0x1f, "buffer_store_dwordx4", "=b128"},
};

constexpr Row kMubufCaches[] = {
    {0x28, "buffer_wbl2", "=", kNoAddress},
    {0x29, "buffer_inv", "=", kNoAddress},
};

constexpr Row kMubufAtomics[] = {
    {0x40, "buffer_atomic_swap", "b32=b32"},
    {0x41, "buffer_atomic_cmpswap", "b32=b32x2"},
    {0x42, "buffer_atomic_add", "b32=b32"},
    {0x43, "buffer_atomic_sub", "b32=b32"},
    {0x44, "buffer_atomic_smin", "b32=b32"},
    {0x45, "buffer_atomic_umin", "b32=b32"},
    {0x46, "buffer_atomic_smax", "b32=b32"},
    {0x47, "buffer_atomic_umax", "b32=b32"},
    {0x48, "buffer_atomic_and", "b32=b32"},
    {0x49, "buffer_atomic_or", "b32=b32"},
    {0x4a, "buffer_atomic_xor", "b32=b32"},
    {0x4b, "buffer_atomic_inc", "b32=b32"},
    {0x4c, "buffer_atomic_dec", "b32=b32"},
    {0x4d, "buffer_atomic_add_f32", "b32=b32"},
    {0x4e, "buffer_atomic_pk_add_f16", "b32=b32"},
    {0x4f, "buffer_atomic_add_f64", "b64=b64"},
    {0x50, "buffer_atomic_min_f64", "b64=b64"},
    {0x51, "buffer_atomic_max_f64", "b64=b64"},
    {0x60, "buffer_atomic_swap_x2", "b64=b64"},
    {0x61, "buffer_atomic_cmpswap_x2", "b64=b64x2"},
    {0x62, "buffer_atomic_add_x2", "b64=b64"},
    {0x63, "buffer_atomic_sub_x2", "b64=b64"},
    {0x64, "buffer_atomic_smin_x2", "b64=b64"},
    {0x65, "buffer_atomic_umin_x2", "b64=b64"},
    {0x66, "buffer_atomic_smax_x2", "b64=b64"},
    {0x67, "buffer_atomic_umax_x2", "b64=b64"},
    {0x68, "buffer_atomic_and_x2", "b64=b64"},
    {0x69, "buffer_atomic_or_x2", "b64=b64"},
    {0x6a, "buffer_atomic_xor_x2", "b64=b64"},
    {0x6b, "buffer_atomic_inc_x2", "b64=b64"},
    {0x6c, "buffer_atomic_dec_x2", "b64=b64"},
    {0x52, "buffer_atomic_pk_add_bf16", "b32=b32", kGfx950},
};

constexpr Row kGlobalLoads[] = {
    {0x10, "global_load_ubyte", "b8="},      {0x11, "global_load_sbyte", "b8="},
    {0x12, "global_load_ushort", "b16="},    {0x13, "global_load_sshort", "b16="},
    {0x14, "global_load_dword", "b32="},     {0x15, "global_load_dwordx2", "b64="},
    {0x16, "global_load_dwordx3", "b96="},   {0x17, "global_load_dwordx4", "b128="},
    {0x20, "global_load_ubyte_d16", "b8="},  {0x21, "global_load_ubyte_d16_hi", "b8="},
    {0x22, "global_load_sbyte_d16", "b8="},  {0x23, "global_load_sbyte_d16_hi", "b8="},
    {0x24, "global_load_short_d16", "b16="}, {0x25, "global_load_short_d16_hi", "b16="},
};

constexpr Row kGlobalStores[] = {
    {0x18, "global_store_byte", "=b8"},     {0x19, "global_store_byte_d16_hi", "=b8"},
    {0x1a, "global_store_short", "=b16"},   {0x1b, "global_store_short_d16_hi", "=b16"},
    {0x1c, "global_store_dword", "=b32"},   {0x1d, "global_store_dwordx2", "=b64"},
    {0x1e, "global_store_dwordx3", "=b96"}, {0x1f, "global_store_dwordx4", "=b128"},
};

constexpr Row kGlobalCopies[] = {
    {0x26, "global_load_lds_ubyte", "b8=", kReadsM0},
    {0x27, "global_load_lds_sbyte", "b8=", kReadsM0},
    {0x28, "global_load_lds_ushort", "b16=", kReadsM0},
    {0x29, "global_load_lds_sshort", "b16=", kReadsM0},
    {0x2a, "global_load_lds_dword", "b32=", kReadsM0},
    {0x7d, "global_load_lds_dwordx4", "b128=", kGfx950 | kReadsM0},
    {0x7e, "global_load_lds_dwordx3", "b96=", kGfx950 | kReadsM0},
};

constexpr Row kGlobalAtomics[] = {
    {0x40, "global_atomic_swap", "b32=b32"},         {0x41, "global_atomic_cmpswap", "b32=b32x2"},
    {0x42, "global_atomic_add", "b32=b32"},          {0x43, "global_atomic_sub", "b32=b32"},
    {0x44, "global_atomic_smin", "b32=b32"},         {0x45, "global_atomic_umin", "b32=b32"},
    {0x46, "global_atomic_smax", "b32=b32"},         {0x47, "global_atomic_umax", "b32=b32"},
    {0x48, "global_atomic_and", "b32=b32"},          {0x49, "global_atomic_or", "b32=b32"},
    {0x4a, "global_atomic_xor", "b32=b32"},          {0x4b, "global_atomic_inc", "b32=b32"},
    {0x4c, "global_atomic_dec", "b32=b32"},          {0x4d, "global_atomic_add_f32", "b32=b32"},
    {0x4e, "global_atomic_pk_add_f16", "b32=b32"},   {0x4f, "global_atomic_add_f64", "b64=b64"},
    {0x50, "global_atomic_min_f64", "b64=b64"},      {0x51, "global_atomic_max_f64", "b64=b64"},
    {0x52, "global_atomic_pk_add_bf16", "b32=b32"},  {0x60, "global_atomic_swap_x2", "b64=b64"},
    {0x61, "global_atomic_cmpswap_x2", "b64=b64x2"}, {0x62, "global_atomic_add_x2", "b64=b64"},
    {0x63, "global_atomic_sub_x2", "b64=b64"},       {0x64, "global_atomic_smin_x2", "b64=b64"},
    {0x65, "global_atomic_umin_x2", "b64=b64"},      {0x66, "global_atomic_smax_x2", "b64=b64"},
    {0x67, "global_atomic_umax_x2", "b64=b64"},      {0x68, "global_atomic_and_x2", "b64=b64"},
    {0x69, "global_atomic_or_x2", "b64=b64"},        {0x6a, "global_atomic_xor_x2", "b64=b64"},
    {0x6b, "global_atomic_inc_x2", "b64=b64"},       {0x6c, "global_atomic_dec_x2", "b64=b64"},
};

constexpr Row kScratch[] = {
    {0x10, "scratch_load_ubyte", "b8="},      {0x11, "scratch_load_sbyte", "b8="},
    {0x12, "scratch_load_ushort", "b16="},    {0x13, "scratch_load_sshort", "b16="},
    {0x14, "scratch_load_dword", "b32="},     {0x15, "scratch_load_dwordx2", "b64="},
    {0x16, "scratch_load_dwordx3", "b96="},   {0x17, "scratch_load_dwordx4", "b128="},
    {0x18, "scratch_store_byte", "=b8"},      {0x19, "scratch_store_byte_d16_hi", "=b8"},
    {0x1a, "scratch_store_short", "=b16"},    {0x1b, "scratch_store_short_d16_hi", "=b16"},
    {0x1c, "scratch_store_dword", "=b32"},    {0x1d, "scratch_store_dwordx2", "=b64"},
    {0x1e, "scratch_store_dwordx3", "=b96"},  {0x1f, "scratch_store_dwordx4", "=b128"},
    {0x20, "scratch_load_ubyte_d16", "b8="},  {0x21, "scratch_load_ubyte_d16_hi", "b8="},
    {0x22, "scratch_load_sbyte_d16", "b8="},  {0x23, "scratch_load_sbyte_d16_hi", "b8="},
    {0x24, "scratch_load_short_d16", "b16="}, {0x25, "scratch_load_short_d16_hi", "b16="},
};

constexpr Row kScratchCopies[] = {
    {0x26, "scratch_load_lds_ubyte", "b8=", kReadsM0},
    {0x27, "scratch_load_lds_sbyte", "b8=", kReadsM0},
    {0x28, "scratch_load_lds_ushort", "b16=", kReadsM0},
    {0x29, "scratch_load_lds_sshort", "b16=", kReadsM0},
    {0x2a, "scratch_load_lds_dword", "b32=", kReadsM0},
};

constexpr Row kFlatLoads[] = {
    {0x10, "flat_load_ubyte", "b8="},      {0x11, "flat_load_sbyte", "b8="},
    {0x12, "flat_load_ushort", "b16="},    {0x13, "flat_load_sshort", "b16="},
    {0x14, "flat_load_dword", "b32="},     {0x15, "flat_load_dwordx2", "b64="},
    {0x16, "flat_load_dwordx3", "b96="},   {0x17, "flat_load_dwordx4", "b128="},
    {0x20, "flat_load_ubyte_d16", "b8="},  {0x21, "flat_load_ubyte_d16_hi", "b8="},
    {0x22, "flat_load_sbyte_d16", "b8="},  {0x23, "flat_load_sbyte_d16_hi", "b8="},
    {0x24, "flat_load_short_d16", "b16="}, {0x25, "flat_load_short_d16_hi", "b16="},
};

constexpr Row kFlatStores[] = {
    {0x18, "flat_store_byte", "=b8"},     {0x19, "flat_store_byte_d16_hi", "=b8"},
    {0x1a, "flat_store_short", "=b16"},   {0x1b, "flat_store_short_d16_hi", "=b16"},
    {0x1c, "flat_store_dword", "=b32"},   {0x1d, "flat_store_dwordx2", "=b64"},
    {0x1e, "flat_store_dwordx3", "=b96"}, {0x1f, "flat_store_dwordx4", "=b128"},
};

constexpr Row kFlatAtomics[] = {
    {0x40, "flat_atomic_swap", "b32=b32"},         {0x41, "flat_atomic_cmpswap", "b32=b32x2"},
    {0x42, "flat_atomic_add", "b32=b32"},          {0x43, "flat_atomic_sub", "b32=b32"},
    {0x44, "flat_atomic_smin", "b32=b32"},         {0x45, "flat_atomic_umin", "b32=b32"},
    {0x46, "flat_atomic_smax", "b32=b32"},         {0x47, "flat_atomic_umax", "b32=b32"},
    {0x48, "flat_atomic_and", "b32=b32"},          {0x49, "flat_atomic_or", "b32=b32"},
    {0x4a, "flat_atomic_xor", "b32=b32"},          {0x4b, "flat_atomic_inc", "b32=b32"},
    {0x4c, "flat_atomic_dec", "b32=b32"},          {0x4d, "flat_atomic_add_f32", "b32=b32"},
    {0x4e, "flat_atomic_pk_add_f16", "b32=b32"},   {0x4f, "flat_atomic_add_f64", "b64=b64"},
    {0x50, "flat_atomic_min_f64", "b64=b64"},      {0x51, "flat_atomic_max_f64", "b64=b64"},
    {0x52, "flat_atomic_pk_add_bf16", "b32=b32"},  {0x60, "flat_atomic_swap_x2", "b64=b64"},
    {0x61, "flat_atomic_cmpswap_x2", "b64=b64x2"}, {0x62, "flat_atomic_add_x2", "b64=b64"},
    {0x63, "flat_atomic_sub_x2", "b64=b64"},       {0x64, "flat_atomic_smin_x2", "b64=b64"},
    {0x65, "flat_atomic_umin_x2", "b64=b64"},      {0x66, "flat_atomic_smax_x2", "b64=b64"},
    {0x67, "flat_atomic_umax_x2", "b64=b64"},      {0x68, "flat_atomic_and_x2", "b64=b64"},
    {0x69, "flat_atomic_or_x2", "b64=b64"},        {0x6a, "flat_atomic_xor_x2", "b64=b64"},
    {0x6b, "flat_atomic_inc_x2", "b64=b64"},       {0x6c, "flat_atomic_dec_x2", "b64=b64"},
};

constexpr Rows kRows[] = {
    {Format::mubuf, Class::vmem_load, kMubufLoads},
    {Format::mubuf, Class::vmem_store, kMubufStores},
    {Format::mubuf, Class::nop, kMubufCaches},
    {Format::mubuf, Class::global_atomic, kMubufAtomics},
    {Format::global, Class::vmem_load, kGlobalLoads},
    {Format::global, Class::vmem_store, kGlobalStores},
    {Format::global, Class::lds_copy, kGlobalCopies},
    {Format::global, Class::global_atomic, kGlobalAtomics},
    {Format::scratch, Class::scratch, kScratch},
    {Format::scratch, Class::lds_copy, kScratchCopies},
    {Format::flat, Class::vmem_load, kFlatLoads},
    {Format::flat, Class::vmem_store, kFlatStores},
    {Format::flat, Class::global_atomic, kFlatAtomics},
};

}  // namespace

std::span<const Rows> vmem_rows() { return kRows; }

}  // namespace hk::emulator
