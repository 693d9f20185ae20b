"""`attention_prefill` against the reference over generated calls: any feature with any other."""

from __future__ import annotations

from hypothesis import example, given

from tests.ops.cases import Case, make
from tests.ops.oracle import check
from tests.ops.strategies import cases, generated


@example(Case(lengths=()))
@example(Case(lengths=(), layout="NHD, two tensors", after=4))
@example(Case(lengths=((0, 0),), after=2))
@example(Case(lengths=((1, 1),), num_heads=1))
@given(cases())
@generated(examples=200)
def test_any_call(case: Case) -> None:
    check(make(case))


@given(cases())
@generated(examples=20)
def test_any_call_on_every_instruction_set(isa: str, case: Case) -> None:
    check(make(case))
