; LDS bytes that one wave makes and others use: the wave's own wait comes before the barrier.

# a copy that is waited for after the barrier at which the other wave takes it for granted
lds-race | at ds_read_b32 | beside buffer_load_dword | lds=256 block=128
  $TWO_ROLES
  $COPY_TO_LDS
- s_waitcnt vmcnt(0)
  s_barrier
+ s_waitcnt vmcnt(0)
  s_barrier
  s_endpgm
  other:
  s_barrier
  ds_read_b32 v3, v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  global_store_dword v2, v3, s[6:7]

# half of the waves are a barrier behind, and the barrier before the first read is missing
lds-race | at ds_read_b32 | beside buffer_load_dword | lds=1024 block=256
  $DESCRIPTOR
  $COPY_OF_EACH_WAVE
  s_cmp_lt_u32 s12, 2
  s_cbranch_scc1 early
  s_barrier
  early:
  s_waitcnt vmcnt(0)
- s_barrier
  s_barrier
  v_xor_b32 v2, 0x200, v1
  ds_read_b32 v3, v2
  s_waitcnt lgkmcnt(0)
  s_cmp_lt_u32 s12, 2
  s_cbranch_scc0 late
  s_barrier
  late:
  global_store_dword v2, v3, s[6:7]

# the reader waits for its own copy, and reads what the other wave's copy brings
lds-race | at ds_read_b32 | beside buffer_load_dword | lds=512 block=128
  $DESCRIPTOR
  $COPY_OF_EACH_WAVE
  s_cmp_eq_u32 s12, 1
  s_cbranch_scc1 reader
- s_waitcnt vmcnt(0)
  s_barrier
+ s_waitcnt vmcnt(0)
  s_endpgm
  reader:
  s_waitcnt vmcnt(0)
  s_barrier
  v_xor_b32 v2, 0x100, v1
  ds_read_b32 v3, v2

# the wait before the barrier leaves the last of two copies in flight
lds-race | at ds_read_b32 | beside buffer_load_dword | lds=512 block=128
  $TWO_ROLES
  $COPY_TO_LDS
  s_movk_i32 m0, 0x100
  s_nop 0
  buffer_load_dword v1, s[8:11], 0 offen lds
- s_waitcnt vmcnt(0)
+ s_waitcnt vmcnt(1)
  s_barrier
  s_waitcnt vmcnt(0)
  s_endpgm
  other:
  s_barrier
  ds_read_b32 v3, v2 offset:256

# a wide copy from a global address, waited for after the barrier
lds-race | at ds_read_b32 | beside global_load_lds_dwordx4 | lds=1024 block=128
  $TWO_ROLES
  v_lshlrev_b32 v3, 4, v0
  s_mov_b32 m0, 0
  s_nop 0
  global_load_lds_dwordx4 v3, s[4:5]
- s_waitcnt vmcnt(0)
  s_barrier
+ s_waitcnt vmcnt(0)
  s_endpgm
  other:
  s_barrier
  ds_read_b32 v3, v2 offset:768

# an LDS write that is waited for after the barrier
lds-race | at ds_read_b32 | beside ds_write_b32 | lds=512 block=128
  v_xor_b32 v2, 0x100, v1
  ds_write_b32 v1, v0
- s_waitcnt lgkmcnt(0)
  s_barrier
+ s_waitcnt lgkmcnt(0)
  ds_read_b32 v3, v2

# a read that is waited for after the barrier behind which another wave overwrites it
lds-race | at ds_write_b32 | beside ds_read_b32 | lds=256 block=128
  $TWO_ROLES
  ds_read_b32 v3, v2
- s_waitcnt lgkmcnt(0)
  s_barrier
+ s_waitcnt lgkmcnt(0)
  s_endpgm
  other:
  s_barrier
  ds_write_b32 v2, v0

# a read that is waited for after the barrier behind which another wave copies over it
lds-race | at buffer_load_dword | beside ds_read_b32 | lds=256 block=128
  $TWO_ROLES
  ds_read_b32 v3, v2
- s_waitcnt lgkmcnt(0)
  s_barrier
+ s_waitcnt lgkmcnt(0)
  s_endpgm
  other:
  s_barrier
  $COPY_TO_LDS
  s_waitcnt vmcnt(0)

# an LDS write that is waited for after the barrier behind which another wave copies over it
lds-race | at buffer_load_dword | beside ds_write_b32 | lds=256 block=128
  $TWO_ROLES
  ds_write_b32 v2, v0
- s_waitcnt lgkmcnt(0)
  s_barrier
+ s_waitcnt lgkmcnt(0)
  s_endpgm
  other:
  s_barrier
  $COPY_TO_LDS
  s_waitcnt vmcnt(0)

# a copy that is waited for after the barrier behind which another wave writes over it
lds-race | at ds_write_b32 | beside buffer_load_dword | lds=256 block=128
  $TWO_ROLES
  $COPY_TO_LDS
- s_waitcnt vmcnt(0)
  s_barrier
+ s_waitcnt vmcnt(0)
  s_endpgm
  other:
  s_barrier
  ds_write_b32 v2, v0

# two waves copy to the same bytes, the second before the first one's wait
lds-race | at buffer_load_dword | beside buffer_load_dword | lds=256 block=128
  $TWO_ROLES
  $COPY_TO_LDS
- s_waitcnt vmcnt(0)
  s_barrier
+ s_waitcnt vmcnt(0)
  s_endpgm
  other:
  s_barrier
  $COPY_TO_LDS
  s_waitcnt vmcnt(0)
