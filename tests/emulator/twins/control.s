; Barriers, loops, jumps.

# a barrier at which some lanes do not arrive
divergent-barrier | at s_barrier | block=128
  v_cmp_gt_u32 vcc, 7, v0
  s_and_saveexec_b64 s[10:11], vcc
- s_mov_b64 exec, s[10:11]
  s_barrier

# lanes without a work-item are not missed at a barrier
divergent-barrier | block=164
+ s_mov_b64 exec, 1
  s_barrier

# a barrier that one wave ends without
divergent-barrier | at s_barrier | block=128
  v_readfirstlane_b32 s8, v0
  s_cmp_eq_u32 s8, 64
  s_cbranch_scc1 others
  s_barrier
  s_endpgm
  others:
- s_barrier

# a loop without an end
endless-loop | max_instructions=10000
- s_mov_b32 s8, 9
+ s_mov_b32 s8, 8
  again:
  s_sub_u32 s8, s8, 3
  s_cmp_eq_u32 s8, 0
  s_cbranch_scc0 again

# a trap
trap
- s_nop 0
+ s_trap 2

# a jump into the middle of an instruction
bad-jump | at s_setpc_b64
  s_getpc_b64 s[8:9]
- s_add_u32 s8, s8, 20
+ s_add_u32 s8, s8, 16
  s_addc_u32 s9, s9, 0
  s_setpc_b64 s[8:9]
  s_mov_b32 s10, 0x12345678
  s_nop 0

# a branch out of the program
bad-jump | at s_cbranch_scc1
  s_cmp_eq_u32 s2, s2
- s_cbranch_scc0 0x7000
+ s_cbranch_scc1 0x7000

# words that are no instruction
unknown-instruction | at unknown 0x7fffffff
- s_branch on
  .long 0x7fffffff
  on:

# an instruction that is not emulated
unknown-instruction | at v_lerp_u8
- v_lshl_or_b32 v2, v0, v0, v0
+ v_lerp_u8 v2, v0, v0, v0

# a form of an instruction that is not emulated
unsupported-instruction | at v_permlane32_swap_b32
- s_mov_b64 exec, -1
+ s_mov_b64 exec, 1
  v_permlane32_swap_b32 v0, v1

# a lane exchange of another kind: ROTATE,0,1
unsupported-instruction | at ds_swizzle_b32
- ds_swizzle_b32 v2, v0 offset:swizzle(REVERSE,8)
+ ds_swizzle_b32 v2, v0 offset:swizzle(ROTATE,0,1)

# GDS
unsupported-instruction | at ds_write_b32 | lds=256
  s_mov_b32 m0, 0
- .long 0xd81a0000, 1
+ .long 0xd81b0000, 1

# a memory instruction that is not emulated
unsupported-instruction | at ds_write_addtid_b32 | lds=256
  s_mov_b32 m0, 0
  v_mov_b32 v2, 0
- ds_write_b32 v2, v0 offset:16
+ ds_write_addtid_b32 v0 offset:16
