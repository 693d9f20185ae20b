; LDS: bounds, bytes never written, races between waves, copies from global memory.

# LDS past what was asked for
lds-out-of-bounds | lds=512
- ds_write_b32 v1, v0 offset:256
+ ds_write_b32 v1, v0 offset:260

# a misaligned LDS access
misaligned | lds=1024
  v_lshlrev_b32 v2, 3, v0
- ds_write_b64 v2, v[0:1]
+ ds_write_b64 v2, v[0:1] offset:4

# LDS read before it was written
lds-unwritten | lds=256
- ds_write_b32 v1, v0
  ds_read_b32 v2, v1
  s_waitcnt lgkmcnt(0)

# two bytes of four were written
lds-unwritten | lds=256
- ds_write_b32 v1, v0
+ ds_write_b16 v1, v0
  ds_read_b32 v2, v1
  s_waitcnt lgkmcnt(0)

# one byte of the two that are read was written
lds-unwritten | at ds_read_u16 | lds=256
- ds_write_b16 v1, v0
+ ds_write_b8 v1, v0
  ds_read_u16 v2, v1
  s_waitcnt lgkmcnt(0)

# one wave reads what another wrote, without a barrier
lds-race | lds=512 block=128
  v_xor_b32 v2, 0x100, v1
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
- s_barrier
  ds_read_b32 v3, v2
  s_waitcnt lgkmcnt(0)

# a write that was not waited for before the barrier
lds-race | at ds_read_b32 | beside ds_write_b32 | lds=512 block=128
  v_xor_b32 v2, 0x100, v1
  ds_write_b32 v1, v0
- s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v3, v2

# a read in flight across the barrier before the overwrite
lds-race | at ds_write_b32 | beside ds_read_b32 | lds=512 block=128
  v_xor_b32 v2, 0x100, v1
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v3, v2
- s_waitcnt lgkmcnt(0)
  s_barrier
  ds_write_b32 v1, v1

# a copy to LDS read before its wait by its own wave
lds-race | at ds_read_b32 | beside buffer_load_dword | lds=256
  $DESCRIPTOR
  $COPY_TO_LDS
- s_waitcnt vmcnt(0)
  ds_read_b32 v2, v1

# a copy over LDS bytes that are still being read
lds-race | at buffer_load_dword | beside ds_read_b32 | lds=256
  $DESCRIPTOR
  ds_write_b32 v1, v0
  s_mov_b32 m0, 0
  s_waitcnt lgkmcnt(0)
  ds_read_b32 v3, v1
- s_waitcnt lgkmcnt(0)
  buffer_load_dword v1, s[8:11], 0 offen lds
  s_waitcnt vmcnt(0)

# a copy past the end of LDS
lds-out-of-bounds | lds=256
  $DESCRIPTOR
- s_mov_b32 m0, 0
+ s_mov_b32 m0, 4
  s_nop 0
  buffer_load_dword v1, s[8:11], 0 offen lds
  s_waitcnt vmcnt(0)

# two waves write the same bytes
lds-race | at ds_write_b32 | beside ds_write_b32 | lds=512 block=128
- v_and_b32 v2, 0x1fc, v1
+ v_and_b32 v2, 0xfc, v1
  ds_write_b32 v2, v0

# atomics of several waves do not race; a read and an atomic do
lds-race | at ds_ | beside ds_ | lds=1024 block=256
  v_mov_b32 v2, 0
  ds_write_b32 v1, v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_add_u32 v2, v0
  s_waitcnt lgkmcnt(0)
- s_barrier
  ds_read_b32 v3, v2

# LDS that a copy has filled counts as written
lds-unwritten | at ds_read_b32 | lds=512
  $DESCRIPTOR
  $COPY_TO_LDS
  s_waitcnt vmcnt(0)
- ds_read_b32 v3, v1 offset:0
+ ds_read_b32 v3, v1 offset:4

# two waves read, then one of them writes
lds-race | lds=256 block=128
  $FIRST_WAVE_WRITES
  ds_read_b32 v3, v2
  s_waitcnt lgkmcnt(0)
- s_barrier
  s_cmp_lt_u32 s8, 64
  s_cbranch_scc1 done
  ds_write_b32 v2, v0
  done:

# two waves may write the same by one instruction, but nothing else
lds-race | at ds_write_b32 | lds=512 block=128
- v_and_b32 v2, 63, v0
+ v_mov_b32 v2, v0
  v_and_b32 v3, 63, v0
  v_lshlrev_b32 v3, 2, v3
  ds_write_b32 v3, v2

# equal writes race with another wave's read of the bytes all the same
lds-race | lds=512 block=128
  v_and_b32 v2, 63, v0
  v_lshlrev_b32 v3, 2, v2
  ds_write_b32 v3, v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v4, v3
  s_waitcnt lgkmcnt(0)
- s_barrier
  ds_write_b32 v3, v2
