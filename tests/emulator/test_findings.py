"""Each check: a correct program without a finding, and its broken twin with the finding."""

from __future__ import annotations

import pytest

from tests.emulator import twins
from tests.emulator.assembly import checks
from tests.emulator.twins import Twins, execute

SEEDS = range(2)


@pytest.mark.parametrize("twins", twins.ALL, ids=lambda t: t.name)
def test_the_correct_program_is_clean_and_its_twin_is_not(twins: Twins) -> None:
    """A correct program has no finding; its broken twin has the one that its listing names."""
    assert twins.broken != twins.good
    for seed in SEEDS:
        report = execute(twins.good, seed, **twins.options)
        assert not report.findings, [f.message for f in report.findings]
        report = execute(twins.broken, seed, **twins.options)
        found = [f for f in report.findings if f.check == twins.check]
        assert found, [f.message for f in report.findings]
        finding = found[0]
        assert finding.kernel.startswith("k")
        assert finding.instruction.startswith(twins.instruction)
        assert finding.other_instruction.startswith(twins.other)
        assert f"{finding.pc:#x}" in finding.message
        assert finding.instruction in finding.message


def test_without_checks_only_what_cannot_be_executed_is_found() -> None:
    by_name = {twins.name: twins for twins in twins.ALL}
    for name, found in (
        ("a global load without its wait", set()),
        ("a store before its begin", {"out-of-bounds"}),
    ):
        assert checks(execute(by_name[name].broken, checks=False)) == found


def test_the_same_finding_is_told_once_and_the_list_is_bounded() -> None:
    broken = "v_mov_b32 v3, 0\n again:\n v_add_u32 v3, v20, v3\n s_add_u32 s2, s2, 1\n"
    broken += "s_cmp_lt_u32 s2, 9\n s_cbranch_scc1 again"
    assert len(execute(broken).findings) == 1
    many = "\n".join(f"v_mov_b32 v3, v{20 + i}" for i in range(30))
    assert len(execute(many).findings) == 20
    assert len(execute(many, max_findings=3).findings) == 3
