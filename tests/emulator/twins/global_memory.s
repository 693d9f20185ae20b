; Global memory and scratch: bounds, and races between workgroups.

# a store before its begin
out-of-bounds
- global_store_dword v1, v0, s[6:7]
+ global_store_dword v1, v0, s[6:7] offset:-4

# num_records larger than what is mapped
out-of-bounds
  s_mov_b32 s8, s4
  s_mov_b32 s9, s5
- s_movk_i32 s10, 0x400
+ s_movk_i32 s10, 0x404
  s_mov_b32 s11, 0x20000
  buffer_load_dword v2, v1, s[8:11], 0 offen offset:772

# a scalar load past the end
out-of-bounds
- s_load_dwordx4 s[8:11], s[4:5], 0x3f0
+ s_load_dwordx4 s[8:11], s[4:5], 0x3f4

# scratch past its size
out-of-bounds | scratch=16
- scratch_store_dword off, v0, off offset:12
+ scratch_store_dword off, v0, off offset:16

# two workgroups write the same bytes
global-race | grid=2
- s_lshl_b32 s8, s2, 8
+ s_lshl_b32 s8, s2, 7
  v_add_u32 v2, s8, v1
  global_store_dword v2, v0, s[6:7]

# a workgroup reads what another one writes
global-race | grid=2
  s_lshl_b32 s8, s2, 8
  v_add_u32 v2, s8, v1
  global_store_dword v2, v0, s[6:7]
- global_load_dword v3, v2, s[6:7] offset:0
+ global_load_dword v3, v2, s[6:7] offset:4

# two workgroups write neighbouring bytes
global-race | grid=2
- v_add_u32 v2, s2, v1
+ v_add_u32 v2, 0, v1
  global_store_byte v2, v0, s[6:7]

# lanes that are off access nothing
out-of-bounds | at global_store_dword
  v_mov_b32 v2, 0
  v_mov_b32 v3, 0
- s_mov_b64 exec, 0
+ s_mov_b64 exec, 2
  global_store_dword v[2:3], v0, off
  global_load_dword v4, v[2:3], off

# a copy to LDS of less than a dword
unsupported-instruction | at buffer_load_ubyte | lds=256
  $DESCRIPTOR
  s_mov_b32 m0, 0
  s_nop 0
- buffer_load_dword v1, s[8:11], 0 offen lds
+ buffer_load_ubyte v1, s[8:11], 0 offen lds
  s_waitcnt vmcnt(0)

# a null pointer
out-of-bounds | at s_load_dword
+ s_mov_b64 s[4:5], 0
  s_load_dword s20, s[4:5], 0x0

# a misaligned atomic
misaligned | at global_atomic_add
  v_mov_b32 v2, 0
- global_atomic_add v1, v2, s[6:7]
+ global_atomic_add v1, v2, s[6:7] offset:2

# atomics of two workgroups do not race; a store and an atomic do
global-race | grid=2
  v_mov_b32 v2, 0
- global_atomic_add v2, v0, s[6:7]
+ global_store_dword v2, v0, s[6:7]

# workgroups may read what another one reads
global-race | grid=3
- global_load_dword v2, v1, s[6:7]
+ global_store_dword v1, v0, s[6:7]

# a swizzled buffer
unsupported-instruction | at buffer_load_dword
  $DESCRIPTOR
- s_or_b32 s9, s9, 0
+ s_or_b32 s9, s9, 0x80000000
  buffer_load_dword v2, v1, s[8:11], 0 offen

# a buffer whose index the lane is added to
unsupported-instruction | at buffer_load_dword
  $DESCRIPTOR
- s_or_b32 s11, s11, 0
+ s_or_b32 s11, s11, 0x800000
  buffer_load_dword v2, v1, s[8:11], 0 offen

# a scalar offset past num_records
ambiguous | at buffer_load_dword
  $DESCRIPTOR
- s_movk_i32 s12, 0x400
+ s_movk_i32 s12, 0x401
  buffer_load_dword v2, v1, s[8:11], s12 offen

# a scalar load from a buffer with a stride
ambiguous | at s_buffer_load_dword
  $DESCRIPTOR
- s_or_b32 s9, s9, 0
+ s_or_b32 s9, s9, 0x100000
  s_buffer_load_dword s20, s[8:11], 0x0

# an atomic on what another workgroup has stored
global-race | grid=2
  v_mov_b32 v2, 0
  s_cmp_eq_u32 s2, 0
  s_cselect_b64 exec, 1, 0
- global_atomic_add v2, v0, s[6:7]
+ global_store_dword v2, v0, s[6:7]
  s_cselect_b64 exec, 0, 1
  global_atomic_add v2, v0, s[6:7]
