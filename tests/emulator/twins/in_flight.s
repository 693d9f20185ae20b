; Results of memory instructions: they land when a wait forces them, and no sooner.

# a global load without its wait
unwaited-register | at v_add_u32 | beside global_load_dword
  global_load_dword v2, v1, s[4:5]
- s_waitcnt vmcnt(0)
  v_add_u32 v3, v2, v2

# a full counter lands the oldest load: 63 are the most in flight
unwaited-register | at v_add_u32 | beside global_load_dword v2
  global_load_dword v2, v1, s[4:5]
- $LOADS_63
+ $LOADS_62
  v_add_u32 v3, v2, v2

# stores count in vmcnt, too
unwaited-register | beside global_load_dword v2
  global_load_dword v2, v1, s[4:5]
  global_store_dword v1, v0, s[6:7]
- s_waitcnt vmcnt(1)
+ s_waitcnt vmcnt(2)
  v_add_u32 v4, v2, v2

# an LDS read without its wait
unwaited-register | at v_add_u32 | beside ds_read_b32 | lds=256
  ds_write_b32 v1, v0
  ds_read_b32 v2, v1
- s_waitcnt lgkmcnt(0)
+ s_waitcnt lgkmcnt(1)
  v_add_u32 v3, v2, v2

# a scalar load without its wait
unwaited-register | at s_add_u32 | beside s_load_dword
  s_load_dword s8, s[4:5], 0x0
- s_waitcnt lgkmcnt(0)
  s_add_u32 s9, s8, 1

# scalar loads return in any order
unwaited-register | beside s_load_dword s8
  s_load_dword s8, s[4:5], 0x0
  s_load_dword s9, s[4:5], 0x4
- s_waitcnt lgkmcnt(0)
+ s_waitcnt lgkmcnt(1)
  s_add_u32 s10, s8, 1

# a register overwritten while its load is in flight
overwritten-in-flight | at v_mov_b32 | beside global_load_dword
  global_load_dword v2, v1, s[4:5]
- s_waitcnt vmcnt(0)
  v_mov_b32 v2, 0

# vector loads return in order, so two may write one register; its wait is the second one's
unwaited-register | at v_add_u32 | beside global_load_dword v2
  global_load_dword v2, v1, s[4:5]
  global_load_dword v2, v1, s[4:5] offset:4
- s_waitcnt vmcnt(0)
+ s_waitcnt vmcnt(1)
  v_add_u32 v3, v2, v2

# a FLAT load may return before the loads that precede it
overwritten-in-flight | at flat_load_dword | beside global_load_dword
  v_mov_b32 v4, s4
  v_mov_b32 v5, s5
  global_load_dword v2, v1, s[4:5]
- s_waitcnt vmcnt(0)
  flat_load_dword v2, v[4:5]
  s_waitcnt vmcnt(0) lgkmcnt(0)

# nor does an LDS read wait for loads
overwritten-in-flight | at ds_read_b32 | beside global_load_dword | lds=256
  ds_write_b32 v1, v0
  global_load_dword v2, v1, s[4:5]
- s_waitcnt vmcnt(0)
  ds_read_b32 v2, v1
  s_waitcnt vmcnt(0) lgkmcnt(0)

# a load does not wait for a FLAT load into its register
overwritten-in-flight | at global_load_dword | beside flat_load_dword
  v_mov_b32 v4, s4
  v_mov_b32 v5, s5
  flat_load_dword v2, v[4:5]
- s_waitcnt vmcnt(0) lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0) lgkmcnt(0)

# nor for an LDS read into its register
overwritten-in-flight | at global_load_dword | beside ds_read_b32 | lds=256
  ds_write_b32 v1, v0
  ds_read_b32 v2, v1
- s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0) lgkmcnt(0)

# a part of a wide load stays in flight where a narrow one follows into it
unwaited-register | at v_add_u32 | beside global_load_dword v3
  v_lshlrev_b32 v1, 1, v1
  global_load_dwordx2 v[2:3], v1, s[4:5]
  global_load_dword v3, v1, s[4:5]
- s_waitcnt vmcnt(0)
+ s_waitcnt vmcnt(1)
  v_add_u32 v4, v3, v2

# LDS instructions return in order, whatever scalar loads do
unwaited-register | at v_add_u32 | beside ds_read_b32 v2 | lds=256
  ds_write_b32 v1, v0
  ds_read_b32 v2, v1
  ds_read_b32 v3, v1
  s_load_dword s8, s[4:5], 0x0
- s_waitcnt lgkmcnt(1)
+ s_waitcnt lgkmcnt(2)
  v_add_u32 v4, v2, v2

# the last of the LDS instructions is not known to be back while a scalar load may be
unwaited-register | at v_add_u32 | beside ds_read_b32 v2 | lds=256
  ds_write_b32 v1, v0
  s_load_dword s8, s[4:5], 0x0
  ds_read_b32 v2, v1
- s_waitcnt lgkmcnt(0)
+ s_waitcnt lgkmcnt(1)
  v_add_u32 v4, v2, v2

# a FLAT load needs both counters
unwaited-register | at v_add_u32 | beside flat_load_dword
  v_mov_b32 v2, s4
  v_mov_b32 v3, s5
  flat_load_dword v4, v[2:3]
- s_waitcnt vmcnt(0) lgkmcnt(0)
+ s_waitcnt vmcnt(0)
  v_add_u32 v5, v4, v4

# a copy to LDS counts in vmcnt in the order of issue
lds-race | at ds_read_b32 | beside buffer_load_dword | lds=256
  $DESCRIPTOR
  $COPY_TO_LDS
  global_load_dword v2, v1, s[4:5]
  global_store_dword v1, v0, s[6:7]
- s_waitcnt vmcnt(2)
+ s_waitcnt vmcnt(3)
  ds_read_b32 v3, v1

# a copy to LDS does not count in lgkmcnt
lds-race | lds=256
  $DESCRIPTOR
  $COPY_TO_LDS
- s_waitcnt vmcnt(0)
+ s_waitcnt lgkmcnt(0)
  ds_read_b32 v3, v1

# a wave waits for its copies to LDS before it ends
copy-in-flight | at s_endpgm | beside buffer_load_dword | lds=256
  $DESCRIPTOR
  $COPY_TO_LDS
  global_store_dword v1, v0, s[6:7]
- s_waitcnt vmcnt(1)

# vmcnt(62) is the largest that waits: 63 in its field means no wait
unwaited-register | beside global_load_dword v17
  $LOADS_TO_V10_AND_69_MORE
- s_waitcnt vmcnt(62)
+ s_waitcnt vmcnt(63)
  v_add_u32 v4, v17, v17

# lgkmcnt(14) is the largest that waits: 15 in its field means no wait
unwaited-register | beside ds_read_b32 v15 | lds=256
  ds_write_b32 v1, v0
  $READS_TO_V10_AND_19_MORE
- s_waitcnt lgkmcnt(14)
+ s_waitcnt lgkmcnt(15)
  v_add_u32 v4, v15, v15
