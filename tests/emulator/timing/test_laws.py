"""Laws of the timing model, on generated programs.

With one wave on each SIMD nothing gets faster by more work, more waiting or a worse machine. With
several, who is served first changes, too; then the time lies between that of the busiest unit and
that of all waves one after another. The same bytes give the same clocks.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hk_backend import _emulator
from hk_backend.timing.workloads.buffers import zeros
from tests.emulator.assembly import needs_llvm
from tests.emulator.timing import generated
from tests.emulator.timing.generated import CONFLICT_FREE, CONFLICTING, LDS, body, programs
from tests.emulator.timing.programs import replay, trace
from tests.ops.strategies import generated as generated_cases

pytestmark = needs_llvm

HIGHER_IS_FASTER = (
    "lds_read_b128", "lds_read_b64", "lds_write", "lds_copy", "vector_memory", "l2", "hbm",
    "compute_unit_fabric", "infinity_cache",
)  # fmt: skip
LOWER_IS_FASTER = (
    "issue", "vector", "vector_wide", "transcendental", "matrix", "matrix_issue", "matrix_forward",
    "lds_latency", "l1_latency", "l2_latency", "infinity_cache_latency", "hbm_latency",
    "scalar_latency", "barrier_release", "hbm_write_cost",
)  # fmt: skip
WAVES = st.sampled_from((1, 4))
"""At most one on each SIMD."""


def traced(instructions: list[str], waves: int) -> _emulator.Trace:
    data = zeros((generated.DATA_WORDS,), np.uint32)
    return trace(body(instructions), waves=waves, data=data, lds=LDS, vgprs=128, accum_offset=128)


def clocks(instructions: list[str], waves: int) -> int:
    return replay(traced(instructions, waves)).clocks


@given(programs, st.data(), WAVES)
@generated_cases(examples=60)
def test_an_added_instruction_or_wait_makes_nothing_faster(
    program: list[str], data: st.DataObject, waves: int
) -> None:
    place = data.draw(st.integers(0, len(program)))
    more = data.draw(generated.added)
    longer = [*program[:place], more, *program[place:]]
    assert clocks(longer, waves) >= clocks(program, waves)


@given(programs, WAVES)
@generated_cases(examples=40)
def test_a_conflict_makes_nothing_faster(program: list[str], waves: int) -> None:
    free = [line.replace(CONFLICTING, CONFLICT_FREE) for line in program]
    conflicting = [line.replace(CONFLICT_FREE, CONFLICTING) for line in program]
    assert clocks(conflicting, waves) >= clocks(free, waves)


@given(programs, WAVES, st.sampled_from((1.5, 4.0, 10.0)))
@generated_cases(examples=40)
def test_a_worse_machine_is_not_faster(program: list[str], waves: int, factor: float) -> None:
    trace = traced(program, waves)
    before = replay(trace).clocks
    parameters = _emulator.TimingParameters("gfx950")
    for name in LOWER_IS_FASTER:
        worse = {name: round(parameters[name] * factor)}
        assert replay(trace, **worse).clocks >= before, name
    for name in HIGHER_IS_FASTER:
        assert replay(trace, **{name: parameters[name] / factor}).clocks >= before, name


@given(programs, st.sampled_from((2, 4, 8, 16)))
@generated_cases(examples=60)
def test_waves_together_take_no_longer_than_one_by_one(program: list[str], waves: int) -> None:
    """And no less than the unit that has most to do."""
    together = replay(traced(program, waves))
    assert together.clocks <= waves * clocks(program, 1)
    assert max(together.busy.values()) <= together.clocks


@given(programs, st.sampled_from((1, 8)))
@generated_cases(examples=20)
def test_the_same_bytes_give_the_same_clocks(program: list[str], waves: int) -> None:
    first, second = (replay(traced(program, waves)) for _ in range(2))
    assert (first.clocks, first.busy) == (second.clocks, second.busy)


@pytest.mark.parametrize("line", ["v_exp_f32 v4, v8", "ds_read_b128 v[4:7], v60", "s_nop 3"])
def test_the_laws_programs_are_timed(line: str) -> None:
    """What is generated takes time at all."""
    assert clocks([line] * 30, 1) > clocks([line] * 10, 1)
