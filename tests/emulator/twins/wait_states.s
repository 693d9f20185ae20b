; Wait states that software has to insert (hazards.cpp).

# a matrix result read too early
matrix-hazard | at v_add_f32 | beside v_mfma
  $ZEROS
  $MFMA
- s_nop 11
+ s_nop 10
  v_add_f32 v40, v16, v16

# a matrix result stored too early
matrix-hazard | beside v_mfma
  $ZEROS
  $MFMA
- s_nop 11
+ s_nop 10
  global_store_dword v1, v31, s[6:7]

# a matrix result overwritten too early
matrix-hazard | beside v_mfma
  $ZEROS
  $MFMA
- s_nop 11
+ s_nop 10
  v_mov_b32 v31, 0

# a matrix result as the next one's A
matrix-hazard | beside v_mfma
  $ZEROS
  $MFMA
- s_nop 11
+ s_nop 10
  v_mfma_f32_32x32x16_bf16 v[32:47], v[16:19], v[6:9], 0

# the same accumulator follows at once, another overlapping one does not
matrix-hazard | beside v_mfma
  $ZEROS
  $MFMA
- v_mfma_f32_32x32x16_bf16 v[16:31], v[2:5], v[6:9], v[16:31]
+ v_mfma_f32_32x32x16_bf16 v[18:33], v[2:5], v[6:9], v[18:33]

# a vector result as a matrix operand
hazard | at v_mfma | beside v_mov_b32
  $ZEROS
  v_mov_b32 v2, 1
- s_nop 1
+ s_nop 0
  v_mfma_f32_32x32x16_bf16 v[16:31], v[2:5], v[6:9], 0

# an accumulator overwritten while it is read
matrix-hazard | beside v_mfma
  $ZEROS
  v_mov_b32 v16, 0
  v_mov_b32 v17, 0
  v_mov_b32 v18, 0
  v_mov_b32 v19, 0
  s_nop 1
  v_mfma_f32_16x16x32_bf16 v[20:23], v[2:5], v[6:9], v[16:19]
- s_nop 2
+ s_nop 1
  v_mov_b32 v16, 1

# an SGPR written by a vector instruction, read by memory
hazard | beside v_readfirstlane_b32
  $DESCRIPTOR
  v_mov_b32 v3, 0
  s_nop 0
  v_readfirstlane_b32 s12, v3
- s_nop 4
+ s_nop 3
  buffer_load_dword v2, v1, s[8:11], s12 offen

# a mask written by a compare, read by a select
hazard | beside v_cmp_gt_u32
  v_cmp_gt_u32 vcc, 3, v0
- s_nop 1
+ s_nop 0
  v_cndmask_b32 v3, v0, v1, vcc

# a lane number written by a vector instruction
hazard
  v_readfirstlane_b32 s8, v0
- s_nop 3
+ s_nop 2
  v_readlane_b32 s9, v1, s8

# EXEC written by a vector compare before DPP
hazard
  v_cmpx_le_u32 exec, 0, v0
- s_nop 4
+ s_nop 3
  v_mov_b32_dpp v3, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf

# a vector result read through DPP
hazard
  v_mov_b32 v2, 1
- s_nop 1
+ s_nop 0
  v_mov_b32_dpp v3, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf

# a transcendental result read at once
hazard | beside v_exp_f32
  v_exp_f32 v2, v1
- s_nop 0
  v_add_f32 v3, v2, v2

# a lane swap right after its operand is written
hazard
  v_mov_b32 v2, 1
  v_mov_b32 v3, 1
- s_nop 1
  v_permlane32_swap_b32 v2, v3

# VCC written by a vector instruction before v_div_fmas
hazard
  v_mov_b32 v2, 1.0
  v_div_scale_f32 v3, vcc, v2, v2, v2
- s_nop 3
+ s_nop 2
  v_div_fmas_f32 v4, v2, v2, v2

# the data of a wide store overwritten at once
hazard | beside global_store_dwordx4
  v_lshlrev_b32 v2, 2, v1
  global_load_dwordx4 v[4:7], v2, s[4:5]
  s_waitcnt vmcnt(0)
  global_store_dwordx4 v2, v[4:7], s[6:7]
- s_nop 1
+ s_nop 0
  v_mov_b32 v4, 0

# M0 written right before a copy to LDS
hazard | beside s_mov_b32 m0 | lds=256
  $DESCRIPTOR
  s_mov_b32 m0, 0
- s_nop 0
  buffer_load_dword v1, s[8:11], 0 offen lds
  s_waitcnt vmcnt(0)

# MODE read right after it was set
hazard
  s_setreg_imm32_b32 hwreg(HW_REG_MODE), 0
- s_nop 1
+ s_nop 0
  s_getreg_b32 s8, hwreg(HW_REG_MODE)
