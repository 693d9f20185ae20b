"""The time for measurements, dealt to the kinds of layers of a model."""

from __future__ import annotations

from hk_backend.engine.evidence.measuring import Budget


def test_kinds_that_are_left_get_equal_parts_and_further_ones_half_of_the_rest() -> None:
    budget = Budget(left=12.0, kinds=3)
    shares = []
    for _ in range(5):
        shares.append(budget.share(spent=0.0))
        budget.spend(shares[-1])
    assert shares == [4.0, 4.0, 2.0, 1.0, 0.5]


def test_what_a_contest_has_taken_to_make_is_taken_off() -> None:
    budget = Budget(left=12.0, kinds=4)
    assert budget.share(spent=1.0) == 2.0
    assert budget.share(spent=5.0) == 0.0
