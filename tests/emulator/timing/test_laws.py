"""Laws of the timing model, on generated programs.

With one wave on each SIMD nothing gets faster by more work, more waiting or a worse machine. With
several, who is served first changes, too; then the time lies between that of the busiest unit and
that of all waves one after another. The same bytes give the same clocks.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hk_backend import _emulator
from hk_backend.timing.workloads.buffers import zeros
from tests.emulator.assembly import needs_llvm
from tests.emulator.timing import generated
from tests.emulator.timing.generated import LDS, body, programs
from tests.emulator.timing.programs import replay, trace
from tests.ops.strategies import generated as generated_cases

pytestmark = needs_llvm

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


@given(programs, st.sampled_from((2, 4, 8, 16)))
@generated_cases(examples=60)
def test_waves_together_take_no_longer_than_one_by_one(program: list[str], waves: int) -> None:
    """And no less than the unit that has most to do."""
    together = replay(traced(program, waves))
    assert together.clocks <= waves * clocks(program, 1)
    assert max(together.busy.values()) <= together.clocks
