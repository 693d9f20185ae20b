; Results of memory instructions: they land when a wait forces them, and no sooner.

# a global load without its wait
unwaited-register | at v_add_u32 | beside global_load_dword
  global_load_dword v2, v1, s[4:5]
- s_waitcnt vmcnt(0)
  v_add_u32 v3, v2, v2

# a wait that is one too weak
unwaited-register | beside global_load_dword v2
  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[4:5] offset:4
- s_waitcnt vmcnt(1)
+ s_waitcnt vmcnt(2)
  v_add_u32 v4, v2, v2

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

# an atomic's result without its wait
unwaited-register | beside global_atomic_add
  v_mov_b32 v2, 0
  global_atomic_add v3, v1, v2, s[6:7] sc0
- s_waitcnt vmcnt(0)
  v_add_u32 v4, v3, v3

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

# a scalar load among LDS reads is only known to be back at 0
unwaited-register | at s_add_u32 | beside s_load_dword s8 | lds=256
  ds_write_b32 v1, v0
  s_load_dword s8, s[4:5], 0x0
  ds_read_b32 v2, v1
- s_waitcnt lgkmcnt(0)
+ s_waitcnt lgkmcnt(1)
  s_add_u32 s9, s8, 1

# a FLAT load needs both counters
unwaited-register | at v_add_u32 | beside flat_load_dword
  v_mov_b32 v2, s4
  v_mov_b32 v3, s5
  flat_load_dword v4, v[2:3]
- s_waitcnt vmcnt(0) lgkmcnt(0)
+ s_waitcnt vmcnt(0)
  v_add_u32 v5, v4, v4

# a FLAT load needs both counters: the other one
unwaited-register | at v_add_u32 | beside flat_load_dword
  v_mov_b32 v2, s4
  v_mov_b32 v3, s5
  flat_load_dword v4, v[2:3]
  s_waitcnt lgkmcnt(0)
- s_waitcnt vmcnt(0)
  v_add_u32 v5, v4, v4

# loads before a FLAT load still return in order
unwaited-register | at v_add_u32 | beside global_load_dword v6
  v_mov_b32 v2, s4
  v_mov_b32 v3, s5
  global_load_dword v6, v1, s[4:5]
  global_load_dword v7, v1, s[4:5]
  flat_load_dword v4, v[2:3]
- s_waitcnt vmcnt(1)
+ s_waitcnt vmcnt(2)
  v_add_u32 v5, v6, v6

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
  global_load_dword v10, v1, s[4:5]
  global_load_dword v11, v1, s[4:5]
  global_load_dword v12, v1, s[4:5]
  global_load_dword v13, v1, s[4:5]
  global_load_dword v14, v1, s[4:5]
  global_load_dword v15, v1, s[4:5]
  global_load_dword v16, v1, s[4:5]
  global_load_dword v17, v1, s[4:5]
  global_load_dword v18, v1, s[4:5]
  global_load_dword v19, v1, s[4:5]
  global_load_dword v20, v1, s[4:5]
  global_load_dword v21, v1, s[4:5]
  global_load_dword v22, v1, s[4:5]
  global_load_dword v23, v1, s[4:5]
  global_load_dword v24, v1, s[4:5]
  global_load_dword v25, v1, s[4:5]
  global_load_dword v26, v1, s[4:5]
  global_load_dword v27, v1, s[4:5]
  global_load_dword v28, v1, s[4:5]
  global_load_dword v29, v1, s[4:5]
  global_load_dword v30, v1, s[4:5]
  global_load_dword v31, v1, s[4:5]
  global_load_dword v32, v1, s[4:5]
  global_load_dword v33, v1, s[4:5]
  global_load_dword v34, v1, s[4:5]
  global_load_dword v35, v1, s[4:5]
  global_load_dword v36, v1, s[4:5]
  global_load_dword v37, v1, s[4:5]
  global_load_dword v38, v1, s[4:5]
  global_load_dword v39, v1, s[4:5]
  global_load_dword v40, v1, s[4:5]
  global_load_dword v41, v1, s[4:5]
  global_load_dword v42, v1, s[4:5]
  global_load_dword v43, v1, s[4:5]
  global_load_dword v44, v1, s[4:5]
  global_load_dword v45, v1, s[4:5]
  global_load_dword v46, v1, s[4:5]
  global_load_dword v47, v1, s[4:5]
  global_load_dword v48, v1, s[4:5]
  global_load_dword v49, v1, s[4:5]
  global_load_dword v50, v1, s[4:5]
  global_load_dword v51, v1, s[4:5]
  global_load_dword v52, v1, s[4:5]
  global_load_dword v53, v1, s[4:5]
  global_load_dword v54, v1, s[4:5]
  global_load_dword v55, v1, s[4:5]
  global_load_dword v56, v1, s[4:5]
  global_load_dword v57, v1, s[4:5]
  global_load_dword v58, v1, s[4:5]
  global_load_dword v59, v1, s[4:5]
  global_load_dword v60, v1, s[4:5]
  global_load_dword v61, v1, s[4:5]
  global_load_dword v62, v1, s[4:5]
  global_load_dword v63, v1, s[4:5]
  global_load_dword v64, v1, s[4:5]
  global_load_dword v65, v1, s[4:5]
  global_load_dword v66, v1, s[4:5]
  global_load_dword v67, v1, s[4:5]
  global_load_dword v68, v1, s[4:5]
  global_load_dword v69, v1, s[4:5]
  global_load_dword v70, v1, s[4:5]
  global_load_dword v71, v1, s[4:5]
  global_load_dword v72, v1, s[4:5]
  global_load_dword v73, v1, s[4:5]
  global_load_dword v74, v1, s[4:5]
  global_load_dword v75, v1, s[4:5]
  global_load_dword v76, v1, s[4:5]
  global_load_dword v77, v1, s[4:5]
  global_load_dword v78, v1, s[4:5]
  global_load_dword v79, v1, s[4:5]
- s_waitcnt vmcnt(62)
+ s_waitcnt vmcnt(63)
  v_add_u32 v4, v17, v17

# lgkmcnt(14) is the largest that waits: 15 in its field means no wait
unwaited-register | beside ds_read_b32 v15 | lds=256
  ds_write_b32 v1, v0
  ds_read_b32 v10, v1
  ds_read_b32 v11, v1
  ds_read_b32 v12, v1
  ds_read_b32 v13, v1
  ds_read_b32 v14, v1
  ds_read_b32 v15, v1
  ds_read_b32 v16, v1
  ds_read_b32 v17, v1
  ds_read_b32 v18, v1
  ds_read_b32 v19, v1
  ds_read_b32 v20, v1
  ds_read_b32 v21, v1
  ds_read_b32 v22, v1
  ds_read_b32 v23, v1
  ds_read_b32 v24, v1
  ds_read_b32 v25, v1
  ds_read_b32 v26, v1
  ds_read_b32 v27, v1
  ds_read_b32 v28, v1
  ds_read_b32 v29, v1
- s_waitcnt lgkmcnt(14)
+ s_waitcnt lgkmcnt(15)
  v_add_u32 v4, v15, v15
