; FLAT instructions, which reach LDS and scratch through their apertures.

# LDS past its end through FLAT
lds-out-of-bounds | lds=272
  $LDS_ADDRESS
- flat_store_dword v[2:3], v0 offset:16
+ flat_store_dword v[2:3], v0 offset:20

# LDS that nobody wrote, read through FLAT
lds-unwritten | lds=512
  $LDS_ADDRESS
  ds_write_b32 v1, v0
  s_waitcnt vmcnt(0) lgkmcnt(0)
- flat_load_dword v6, v[2:3]
+ flat_load_dword v6, v[2:3] offset:64

# a misaligned FLAT access to LDS
misaligned | lds=512
  $LDS_ADDRESS
- flat_store_dword v[2:3], v0
+ flat_store_dword v[2:3], v0 offset:2

# scratch past its end through FLAT
out-of-bounds | scratch=16
  $SCRATCH_ADDRESS
- flat_store_dword v[4:5], v0 offset:12
+ flat_store_dword v[4:5], v0 offset:16

# an atomic access to scratch
unsupported-instruction | scratch=16
  $SCRATCH_ADDRESS
- flat_store_dword v[4:5], v0
+ flat_atomic_add v[4:5], v0

# a FLAT atomic on LDS that nobody wrote
lds-unwritten | lds=256
  $LDS_ADDRESS
- ds_write_b32 v1, v0
  s_waitcnt vmcnt(0) lgkmcnt(0)
  flat_atomic_add v[2:3], v0

# a FLAT store to LDS in flight across the barrier before another wave's read
lds-race | lds=512 block=128
  $LDS_ADDRESS
  v_xor_b32 v8, 0x100, v1
  flat_store_dword v[2:3], v0
- s_waitcnt lgkmcnt(0) vmcnt(0)
+ s_waitcnt vmcnt(0)
  s_barrier
  ds_read_b32 v6, v8

# two waves' FLAT and DS accesses of the same bytes without a barrier
lds-race | lds=512 block=128
  $LDS_ADDRESS
  v_xor_b32 v8, 0x100, v1
  flat_store_dword v[2:3], v0
  s_waitcnt vmcnt(0) lgkmcnt(0)
- s_barrier
  ds_read_b32 v6, v8

# an offset that leads from global memory into LDS
ambiguous | lds=512
  s_mov_b64 s[8:9], src_shared_base
- v_mov_b32 v2, v1
+ v_mov_b32 v2, -4
- v_mov_b32 v3, s9
+ v_mov_b32 v3, 0xffff
  flat_store_dword v[2:3], v0 offset:4
