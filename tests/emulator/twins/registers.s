; Registers: written before they are read, and allocated.

# a VGPR never written
unwritten-register | at v_add_u32
- v_mov_b32 v5, 0
  v_add_u32 v3, v5, v0

# a VGPR written in some lanes only
unwritten-register
- s_mov_b64 exec, -1
+ s_mov_b64 exec, 0xff
  v_mov_b32 v5, 0
  s_mov_b64 exec, -1
  v_add_u32 v3, v5, v0

# a matrix instruction reads all lanes, whatever EXEC says
unwritten-register | at v_mfma
- $ZEROS
+ $ZEROS_BUT_5
  s_nop 1
  s_mov_b64 exec, 0xff
  v_mov_b32 v5, 0
  s_nop 1
  v_mfma_f32_16x16x32_bf16 v[16:19], v[2:5], v[6:9], 0

# an AGPR never written
unwritten-register | at v_accvgpr_read_b32
- v_accvgpr_write_b32 a3, 0
  v_accvgpr_read_b32 v3, a3

# an SGPR never written
unwritten-register | at s_add_u32
- s_mov_b32 s20, 0
  s_add_u32 s21, s20, 1

# VCC never written
unwritten-register | at v_cndmask_b32
- v_cmp_gt_u32 vcc, 3, v0
  s_nop 1
  v_cndmask_b32 v3, v0, v1, vcc

# SCC never written
unwritten-register | at s_cselect_b32
- s_cmp_eq_u32 s2, 0
  s_cselect_b32 s20, 1, 2

# a VGPR past the allocation
register-bounds | vgprs=64 accum_offset=32
- v_mov_b32 v31, 0
+ v_mov_b32 v32, 0

# an AGPR past the allocation
register-bounds | vgprs=64 accum_offset=32
- v_accvgpr_write_b32 a31, 0
+ v_accvgpr_write_b32 a32, 0

# an SGPR past the allocation
register-bounds | sgprs=16
- s_mov_b32 s15, 0
+ s_mov_b32 s40, 0

# packed f32: op_sel names the dwords that are read
unwritten-register | at v_pk_fma_f32
  $ZEROS_BUT_13_AND_14
- v_pk_fma_f32 v[20:21], v[2:3], v[12:13], v[12:13] op_sel_hi:[1,0,0]
+ v_pk_fma_f32 v[20:21], v[2:3], v[12:13], v[12:13] op_sel_hi:[1,1,0]

# packed move: the low dword of one source, the high dword of the other
unwritten-register | at v_pk_mov_b32
  $ZEROS_BUT_13_AND_14
- v_pk_mov_b32 v[20:21], v[12:13], v[14:15] op_sel:[0,1]
+ v_pk_mov_b32 v[20:21], v[12:13], v[14:15] op_sel:[1,1]

# packed f32 of a load in flight: the other dword
unwaited-register | beside global_load_dword
  $ZEROS
  global_load_dword v13, v1, s[4:5]
  v_mov_b32 v12, 0
- v_pk_add_f32 v[20:21], v[2:3], v[12:13] op_sel_hi:[1,0]
+ v_pk_add_f32 v[20:21], v[2:3], v[12:13] op_sel_hi:[1,1]

# the undefined high half of an addend reaches the high half of the result only
unwritten-register | at v_add_u32
  $ZEROS_BUT_13_AND_14
  v_mad_u64_u32 v[20:21], s[8:9], v2, v3, v[12:13]
- v_add_u32 v22, v20, v20
+ v_add_u32 v22, v20, v21

# the low half of an addend must be defined
unwritten-register | at v_mad_i64_i32
  $ZEROS_BUT_13_AND_14
- v_mad_i64_i32 v[20:21], s[8:9], v2, v3, v[12:13]
+ v_mad_i64_i32 v[20:21], s[8:9], v2, v3, v[14:15]

# M0 never written, by a copy to LDS
unwritten-register | at buffer_load_dword | lds=256
  $DESCRIPTOR
- s_mov_b32 m0, 0
  s_nop 0
  buffer_load_dword v1, s[8:11], 0 offen lds
  s_waitcnt vmcnt(0)

# EXEC is written by the hardware, FLAT_SCRATCH too; s40 is not
unwritten-register
  s_mov_b64 s[20:21], exec
- s_mov_b32 s22, exec_lo
+ s_mov_b32 s22, s40

# lanes past the last work-item have no number
unwritten-register | at v_readlane_b32 | block=45
- v_readlane_b32 s20, v0, 40
+ v_readlane_b32 s20, v0, 50

# an SGPR never written may be saved and restored with its tuple, but not used
unwritten-register | at s_add_u32
  v_writelane_b32 v10, s40, 3
  s_nop 1
  v_readlane_b32 s41, v10, 3
- s_mov_b32 s41, 1
  s_add_u32 s42, s41, 1

# a lane that was saved with a number gives it back, its neighbour does not
unwritten-register | at v_readlane_b32
  s_mov_b32 s40, 7
  v_writelane_b32 v10, s40, 3
  s_nop 1
- v_readlane_b32 s41, v10, 3
+ v_readlane_b32 s41, v10, 4
