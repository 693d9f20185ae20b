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
tests.conftest.builds = lambda python: python == "python3.12"
"""


def test_unexplained_skips_are_red(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor without AVX-512 that is no x86-64 either, beside one more Python: only the
    tests of what is not there may skip."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(RULE)
    pytester.makepyfile(
        test_plain="import pytest\ndef test_one():\n    pytest.skip('not today')",
        test_import="import pytest\npytest.importorskip('no_such_package')",
        test_isa="import pytest\n"
        "@pytest.mark.parametrize('isa', ['avx512', 'avx2'])\n"
        "def test_one(isa):\n"
        "    pytest.skip('no such instructions')",
        test_python="import pytest\n"
        "@pytest.mark.parametrize('python', ['python3.12', 'python3.13'])\n"
        "def test_one(python):\n"
        "    pytest.skip('no such Python')",
        test_x86="import pytest\n@pytest.mark.x86_64\ndef test_one(): assert False",
    )
    result = pytester.runpytest_subprocess("--continue-on-collection-errors")
    result.assert_outcomes(failed=3, errors=1, skipped=3)
    result.stdout.fnmatch_lines_random(
        ["*unexpected skip of test_plain.py::test_one*not today*", "*unexpected skip*test_import*"]
    )
