; Wait states that software has to insert (hazards.cpp). How many each pair of instructions needs,
; test_wait_states.py asks LLVM, but for MODE.

# a matrix result read too early
matrix-hazard | at v_add_f32 | beside v_mfma
  $ZEROS
  $MFMA
- s_nop 11
+ s_nop 10
  v_add_f32 v40, v16, v16

# a mask written by a compare, read by a select
hazard | beside v_cmp_gt_u32
  v_cmp_gt_u32 vcc, 3, v0
- s_nop 1
+ s_nop 0
  v_cndmask_b32 v3, v0, v1, vcc

# MODE read right after it was set
hazard
  s_setreg_imm32_b32 hwreg(HW_REG_MODE), 0
- s_nop 1
+ s_nop 0
  s_getreg_b32 s8, hwreg(HW_REG_MODE)
