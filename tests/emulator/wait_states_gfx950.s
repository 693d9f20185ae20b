v_mov_b32 v16, v1
  v_permlane32_swap_b32 v16, v1
  v_permlane16_swap_b32 v1, v16
v_permlane32_swap_b32 v16, v17
  v_add_f32 v100, v16, v1
  v_permlane32_swap_b32 v1, v17
  v_mfma_f32_16x16x4_f32 v[100:103], v16, v1, 0
v_cmpx_le_f32_e64 exec, v1, v2
  v_permlane32_swap_b32 v16, v1
v_cvt_pk_bf16_f32 v16, v1, v2
  v_permlane32_swap_b32 v16, v1
