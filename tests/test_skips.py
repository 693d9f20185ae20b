"""The rule of conftest.py: a skip that nothing explains is a failure."""

from __future__ import annotations

import pytest

from tests.models import ROOT

pytest_plugins = ["pytester"]

RULE = """
from tests.conftest import *
import tests.conftest

tests.conftest.usable_isas = lambda: ["avx2", "portable"]
tests.conftest.architecture = lambda: "aarch64"
"""


def test_unexplained_skips_are_red(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor without AVX-512 that is no x86-64 either: only the tests of those may skip."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(RULE)
    pytester.makepyfile(
        test_plain="import pytest\ndef test_one():\n    pytest.skip('not today')",
        test_import="import pytest\npytest.importorskip('no_such_package')",
        test_isa="import pytest\n"
        "@pytest.mark.parametrize('isa', ['avx512', 'avx2'])\n"
        "def test_one(isa):\n"
        "    pytest.skip('no such instructions')",
        test_x86="import pytest\n@pytest.mark.x86_64\ndef test_one(): assert False",
    )
    result = pytester.runpytest_subprocess("--continue-on-collection-errors")
    result.assert_outcomes(failed=2, errors=1, skipped=2)
    result.stdout.fnmatch_lines_random(
        ["*unexpected skip of test_plain.py::test_one*not today*", "*unexpected skip*test_import*"]
    )
