"""Laws of the timing model, on generated programs.

With one wave on each SIMD nothing gets faster by more work or more waiting. With several, who is
served first changes, too; then the time lies between that of the busiest unit and that of all waves
one after another.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hk_backend import _emulator
from hk_backend.timing.workloads.buffers import zeros
from tests.emulator.assembly import needs_llvm
from tests.emulator.timing.programs import replay, trace
from tests.ops.strategies import generated

pytestmark = needs_llvm

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

WAVES = st.sampled_from((1, 4))
"""At most one on each SIMD."""


def traced(instructions: list[str], waves: int) -> _emulator.Trace:
    data = zeros((DATA_WORDS,), np.uint32)
    return trace(
        START + "\n".join(instructions) + "\n",
        waves=waves,
        data=data,
        lds=LDS,
        vgprs=128,
        accum_offset=128,
    )


def clocks(instructions: list[str], waves: int) -> int:
    return replay(traced(instructions, waves)).clocks


@given(programs, st.data(), WAVES)
@generated(examples=60)
def test_an_added_instruction_or_wait_makes_nothing_faster(
    program: list[str], data: st.DataObject, waves: int
) -> None:
    place = data.draw(st.integers(0, len(program)))
    more = data.draw(added)
    longer = [*program[:place], more, *program[place:]]
    assert clocks(longer, waves) >= clocks(program, waves)


@given(programs, st.sampled_from((2, 4, 8, 16)))
@generated(examples=60)
def test_waves_together_take_no_longer_than_one_by_one(program: list[str], waves: int) -> None:
    """And no less than the unit that has most to do."""
    together = replay(traced(program, waves))
    assert together.clocks <= waves * clocks(program, 1)
    assert max(together.busy.values()) <= together.clocks
