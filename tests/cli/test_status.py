"""`hk-backend status`: what it says about routes, device and engines, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from hk_backend import __version__, machine
from hk_backend.cli import status
from hk_backend.cli.app import app
from hk_backend.config import get_config
from hk_backend.terms.verdict import SERVED, Verdict, refused


@pytest.fixture(autouse=True)
def _fresh_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("HK_BACKEND", "HK_DEVICE", "HK_STRICT", "HK_CHECK"):
        monkeypatch.delenv(name, raising=False)
    get_config.cache_clear()
    yield
    get_config.cache_clear()


def said(exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, ["status"])
    assert result.exit_code == exit_code, result.output
    return result.stdout


def report(exit_code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["status", "--json"])
    assert result.exit_code == exit_code, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def test_versions_machine_device_and_routes() -> None:
    """A route that nobody asked for is off, and why."""
    data = report()
    assert set(data) == {"versions", "machine", "device", "routes", "notes", "evidence"}
    assert data["versions"]["torch"].startswith("2.")
    assert data["machine"]["cores"] >= 1
    assert data["device"]["name"].startswith("cpu:")
    assert data["device"]["on"] is True
    why = "not enabled: HK_BACKEND is unset or 0"
    assert data["routes"]["attention"] == {"on": False, "why": why}
    text = said()
    assert "attention: off" in text
    assert "HK_BACKEND is unset or 0" in text
    version = CliRunner().invoke(app, ["--version"])
    assert (version.exit_code, version.stdout) == (0, f"hk-backend {__version__}\n")


@pytest.mark.parametrize(
    ("device", "verdicts", "why"),
    [
        (SERVED, {"vllm": SERVED}, ""),
        (SERVED, {}, "no supported engine is installed"),
        (SERVED, {"vllm": refused("vllm: it has no build()")}, "vllm: it has no build()"),
        (refused("no such device"), {"vllm": SERVED}, "no such device"),
    ],
)
def test_a_route_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, device: Verdict, verdicts: dict[str, Verdict], why: str
) -> None:
    """It is on if the device can run and the engine is known."""
    monkeypatch.setenv("HK_BACKEND", "attention")
    monkeypatch.setattr(status, "engine_verdicts", lambda route: verdicts)
    monkeypatch.setattr(status, "resolve_device", lambda: ("hip", device))
    data = report()
    assert data["routes"]["attention"] == {"on": not why, "why": why}
    assert data["device"] == {"name": "hip", "on": device.ok, "why": device.why}


def test_bad_values_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a route's reason, and for people once, in one line. A variable that is none of ours is a
    note."""
    monkeypatch.setenv("HK_BACKEND", "gemm")
    assert "HK_BACKEND='gemm' is not valid" in report(1)["routes"]["attention"]["why"]
    monkeypatch.delenv("HK_BACKEND")
    monkeypatch.setenv("HK_DEVICE", "gpu")
    text = said(1)
    (line,) = [line for line in text.splitlines() if "HK_DEVICE" in line]
    assert line.endswith("emulated:gfx950"), "the whole list of valid values"
    assert "route" not in text
    monkeypatch.delenv("HK_DEVICE")
    monkeypatch.setenv("HK_DEVIC", "hip")
    note = "HK_DEVIC is not a variable of hk_backend: did you mean HK_DEVICE?"
    assert report()["notes"] == [note]
    assert note in said()


def verdicts_of(monkeypatch: pytest.MonkeyPatch, says: Callable[[], object]) -> dict[str, Verdict]:
    """Of an engine's plugin that does `says` when it is loaded, and serves everything."""

    def load() -> Callable[[str], Verdict]:
        says()
        return lambda route: SERVED

    entry = SimpleNamespace(name="vllm", load=load)
    monkeypatch.setattr(machine, "version_of", lambda *names: "0.32.0")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])
    return status.engine_verdicts("attention")


def test_an_engine_check_that_raises_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ImportError("libnuma.so.1: cannot open shared object file")

    why = "vllm: ImportError: libnuma.so.1: cannot open shared object file"
    assert verdicts_of(monkeypatch, fails) == {"vllm": refused(why)}
