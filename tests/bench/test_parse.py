"""Comma-separated options."""

from __future__ import annotations

import pytest
import typer

from hk_backend.bench.parse import parse_numbers


def test_a_number_counts_once() -> None:
    """The second would be measured on what the first has left in caches."""
    assert parse_numbers("512, 64,512", "--input-len") == [512, 64]


@pytest.mark.parametrize("text", ["", "0", "-1", "2.5", "64,", "65"])
def test_what_is_no_positive_multiple_is_named(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"--n: '.*' is not a positive multiple of 64"):
        parse_numbers(text, "--n", 64)
