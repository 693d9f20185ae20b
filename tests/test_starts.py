"""More starts of engines than allowed are red, whichever process or session they happen in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import starts
from tests.starts import MOST, TOO_MANY

CONFTEST = """
from tests.starts import Starts

def pytest_configure(config):
    config.pluginmanager.register(Starts(config, bounded={bounded}))
"""
TEST = """
import subprocess, sys
from tests.starts import note_start

def test_here():
    for _ in range({here}):
        note_start("an engine")

def test_in_another_process():
    code = "from tests.starts import note_start; note_start('another engine')"
    for _ in range({there}):
        subprocess.run([sys.executable, "-c", code], check=True)
"""


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=":")
    monkeypatch.delenv(starts.VARIABLE, raising=False)
    return pytester


def run(
    session: pytest.Pytester, here: int, there: int, *, bounded: bool = True
) -> pytest.RunResult:
    session.makeconftest(CONFTEST.format(bounded=bounded))
    session.makepyfile(TEST.format(here=here, there=there))
    return session.runpytest_subprocess("-p", "no:cacheprovider")


def test_more_than_allowed_are_red(session: pytest.Pytester) -> None:
    """Where there is a bound."""
    found = run(session, MOST - 1, 1)
    assert found.ret == pytest.ExitCode.OK
    found.stdout.fnmatch_lines([f"*{MOST}  in all of {MOST}"])
    found = run(session, MOST, 1)
    assert found.ret == TOO_MANY
    found.stdout.fnmatch_lines(["*1  another engine", "*: TOO MANY"])
    assert run(session, MOST, 1, bounded=False).ret == pytest.ExitCode.OK


def test_sessions_share_the_bound(
    session: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Several sessions share one count, as the parts of `make test` do."""
    monkeypatch.setenv(starts.VARIABLE, str(tmp_path / "starts"))
    assert run(session, MOST, 0).ret == pytest.ExitCode.OK
    assert run(session, 1, 0).ret == TOO_MANY
