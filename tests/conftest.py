"""No test may skip, but for one reason that this file knows: the processor lacks its instructions.

The number of skips is pinned by that: none where the machine has AVX-512, elsewhere exactly the
tests of the instruction sets that it lacks. Any other skip is reported as a failure, also one
at import (a missing package must not make a test file vanish).
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not lacks_instructions(item):
        make_red(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        make_red(report)
    return report


def make_red(report: pytest.TestReport | pytest.CollectReport) -> None:
    report.outcome = "failed"
    report.longrepr = f"unexpected skip of {report.nodeid}: {report.longrepr}"


def lacks_instructions(item: pytest.Item) -> bool:
    """Whether a test parametrised by `isa` needs instructions that this machine does not have."""
    callspec = getattr(item, "callspec", None)
    isa = callspec.params.get("isa") if callspec else None
    return isa is not None and isa not in available_isas()


@cache
def available_isas() -> tuple[str, ...]:
    from hk_backend import _cpu

    return tuple(_cpu.available_isas())
