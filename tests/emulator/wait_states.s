# results of another pipe, and parts of registers
v_exp_f32 v16, v1
  v_add_f32 v100, v16, v1
  v_exp_f32 v100, v16
  v_mov_b32 v16, v1
  v_mfma_f32_16x16x4_f32 v[100:103], v16, v1, 0
  global_store_dword v[4:5], v16, off
  ds_write_b32 v1, v16
v_add_f16_sdwa v16, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:WORD_0
  v_add_f32 v100, v16, v1
  v_mov_b32 v16, v1
  v_exp_f32 v100, v16
v_fma_f16 v16, v1, v2, v3 op_sel:[0,0,0,1]
  v_add_f32 v100, v16, v1
  v_exp_f32 v100, v16
v_cvt_pk_fp8_f32 v16, v1, v2 op_sel:[0,0,1]
  v_add_f32 v100, v16, v1
v_dot2_f32_f16 v16, v1, v2, v3
  v_dot2_f32_f16 v16, v16, v2, v3
  v_add_f32 v100, v16, v1
  v_mov_b32 v16, v1
  v_dot4_i32_i8 v100, v1, v2, v16
  global_store_dword v[4:5], v16, off
  ds_write_b32 v1, v16
  global_load_dword v16, v[4:5], off
v_dot2c_f32_f16 v16, v1, v2
  v_dot2c_f32_f16 v16, v1, v2
  v_dot2c_f32_f16 v100, v16, v2
  v_add_f32 v100, v16, v1
  v_mfma_f32_16x16x4_f32 v[100:103], v16, v1, 0
# vector results where other lanes or the matrix unit read them
v_mov_b32 v16, v1
  v_mfma_f32_16x16x4_f32 v[100:103], v16, v1, 0
  v_mfma_f32_16x16x4_f32 v[100:103], v1, v2, v[14:17]
  v_mov_b32_dpp v100, v16 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
  v_add_f32_dpp v100, v1, v16 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
  v_readlane_b32 s20, v16, 3
  v_readfirstlane_b32 s20, v16
  v_add_f32 v100, v16, v1
  global_store_dword v[4:5], v16, off
  ds_write_b32 v16, v1
  v_mov_b32 v16, v2
# scalars that vector instructions write
v_readfirstlane_b32 s20, v1
  v_mov_b32 v100, s20
  s_add_u32 s21, s20, s20
  v_readlane_b32 s23, v1, s20
  v_writelane_b32 v100, 5, s20
  v_writelane_b32 v100, s20, 3
  buffer_load_dword v100, v1, s[8:11], s20 offen
  global_load_dword v100, v1, s[20:21]
  global_store_dword v1, v2, s[20:21]
  s_load_dword s23, s[20:21], 0x0
  v_add_f32 v100, s20, v1
  v_fma_f32 v100, v1, v2, s20
v_cmp_lt_f32_e64 s[20:21], v1, v2
  v_cndmask_b32_e64 v100, v1, v2, s[20:21]
  s_and_b64 s[24:25], s[20:21], s[20:21]
  v_mov_b32 v100, s21
  v_addc_co_u32_e64 v100, s[24:25], v1, v2, s[20:21]
v_cmp_lt_f32 vcc, v1, v2
  v_cndmask_b32 v100, v1, v2, vcc
  v_div_fmas_f32 v100, v1, v2, v3
  v_mov_b32 v100, vcc_lo
  v_addc_co_u32 v100, vcc, v1, v2, vcc
  s_and_b64 s[24:25], vcc, vcc
v_add_co_u32 v16, vcc, v1, v2
  v_addc_co_u32 v100, vcc, v1, v2, vcc
  v_div_fmas_f32 v100, v1, v2, v3
v_div_scale_f32 v16, vcc, v1, v1, v2
  v_div_fmas_f32 v100, v1, v2, v3
v_cmpx_le_f32_e64 exec, v1, v2
  v_mov_b32_dpp v100, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
  v_mov_b32 v100, v1
  v_mfma_f32_16x16x4_f32 v[100:103], v1, v2, 0
  v_readlane_b32 s20, v1, 3
  v_readfirstlane_b32 s20, v1
  v_writelane_b32 v100, s23, 3
  global_load_dword v100, v[4:5], off
# data of a wide store
global_store_dwordx4 v[4:5], v[16:19], off
  v_mov_b32 v16, v1
  v_mov_b32 v19, v1
  v_mov_b32 v20, v1
global_store_dwordx3 v[4:5], v[16:18], off
  v_mov_b32 v18, v1
global_store_dwordx2 v[4:5], v[16:17], off
  v_mov_b32 v16, v1
buffer_store_dwordx4 v[16:19], v1, s[8:11], 0 offen
  v_mov_b32 v16, v1
  v_readfirstlane_b32 s20, v16
buffer_store_dwordx4 v[16:19], v1, s[8:11], s20 offen
  v_mov_b32 v16, v1
# scalar instructions
s_mov_b32 m0, s20
  buffer_load_dword v1, s[8:11], 0 offen lds
  s_sendmsg sendmsg(MSG_INTERRUPT)
  ds_write_b32 v1, v2
  v_mov_b32 v100, m0
  s_mov_b32 s20, m0
s_mov_b64 exec, s[24:25]
  v_mov_b32_dpp v100, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
  v_readlane_b32 s20, v1, 3
  v_mfma_f32_16x16x4_f32 v[100:103], v1, v2, 0
s_mov_b32 s20, s21
  v_mov_b32 v100, s20
  buffer_load_dword v100, v1, s[8:11], s20 offen
  v_readlane_b32 s23, v1, s20
  s_load_dword s23, s[20:21], 0x0
s_mov_b64 vcc, s[24:25]
  v_div_fmas_f32 v100, v1, v2, v3
  v_cndmask_b32 v100, v1, v2, vcc
