"""Generated programs for the laws of the timing model: what one wave executes, as text."""

from __future__ import annotations

from hypothesis import strategies as st

DATA_WORDS = 1 << 16
LDS = 64 * 1024
CONFLICT_FREE, CONFLICTING = "v60", "v61"
"""Addresses 16 and 32 bytes apart: 16-byte accesses of the second take two phases for one."""

START = (
    """
  v_lshlrev_b32 v60, 4, v0
  v_lshlrev_b32 v61, 5, v0
  v_lshlrev_b32 v62, 4, v0
  v_add_u32 v63, 0x10000, v62
  s_mov_b32 m0, 0
"""
    + "".join(f"v_mov_b32 v{i}, 0\n" for i in range(60))
    + "ds_write_b128 v60, v[0:3]\n ds_write_b128 v61, v[0:3]\n s_waitcnt lgkmcnt(0)\n"
)

registers = st.integers(0, 13).map(lambda i: 4 * i)  # the first of four


def four(first: int) -> str:
    return f"v[{first}:{first + 3}]"


VECTOR = (
    "v_fma_f32 v{d}, v{a}, v{b}, v{d}",
    "v_exp_f32 v{d}, v{a}",
    "v_mul_lo_u32 v{d}, v{a}, v{b}",
)
vector = st.builds(
    lambda text, d, a, b: text.format(d=d, a=a, b=b),
    st.sampled_from(VECTOR), registers, registers, registers,
)  # fmt: skip
matrix = st.builds(
    lambda d, a, b: f"v_mfma_f32_16x16x32_bf16 {four(d)}, {four(a)}, {four(b)}, {four(d)}",
    registers, registers, registers,
)  # fmt: skip
lds = st.builds(
    lambda text, d, at: text.format(d=four(d), pair=f"v[{d}:{d + 1}]", at=at),
    st.sampled_from(
        ("ds_read_b128 {d}, {at}", "ds_read_b64 {pair}, {at}", "ds_write_b128 {at}, {d}")
    ),
    registers,
    st.sampled_from((CONFLICT_FREE, CONFLICTING)),
)
scalar = st.sampled_from(("s_add_u32 s8, s8, s9", "s_load_dword s10, s[4:5], 0x0"))
waits = st.one_of(
    st.integers(0, 3).map(lambda n: f"s_waitcnt vmcnt({n})"),
    st.integers(0, 3).map(lambda n: f"s_waitcnt lgkmcnt({n})"),
    st.integers(0, 15).map(lambda n: f"s_nop {n}"),
    st.just("s_barrier"),
)
memory = st.builds(
    lambda text, d, at: text.format(d=four(d), at=at),
    st.sampled_from(
        (
            "global_load_dwordx4 {d}, v62, s[4:5] offset:{at}",
            "global_store_dwordx4 v63, {d}, s[4:5] offset:{at}",
            "global_load_lds_dwordx4 v62, s[4:5] offset:{at}",
        )
    ),
    registers,
    st.integers(0, 3).map(lambda i: 1024 * i),
)
added = st.one_of(vector, matrix, lds, scalar, waits)
"""What may be added to a program: no access to memory, which could bring what a later one needs."""
programs = st.lists(st.one_of(added, memory), min_size=1, max_size=40)


def body(instructions: list[str]) -> str:
    return START + "\n".join(instructions) + "\n"
