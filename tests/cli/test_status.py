"""`hk-backend status`: what it says about routes, device and engines, as JSON."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from hk_backend import __version__, _cpu, machine
from hk_backend.cli import status
from hk_backend.cli.app import app
from hk_backend.config import get_config
from hk_backend.terms.verdict import SERVED, Verdict, refused


@pytest.fixture(autouse=True)
def _fresh_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HK_BACKEND", "HK_DEVICE", "HK_STRICT", "HK_CHECK"):
        monkeypatch.delenv(name, raising=False)


def report(exit_code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["status", "--json"])
    assert result.exit_code == exit_code, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def engine_says(monkeypatch: pytest.MonkeyPatch, **verdicts: Verdict) -> None:
    monkeypatch.setattr(status, "engine_verdicts", lambda route: verdicts)


def test_json_has_versions_machine_device_and_routes() -> None:
    data = report()
    assert set(data) == {"versions", "machine", "device", "routes", "notes", "evidence"}
    assert data["versions"]["torch"].startswith("2.")
    assert data["machine"]["cores"] >= 1
    assert data["device"]["name"].startswith("cpu:")
    assert data["device"]["on"] is True


def test_a_route_that_nobody_asked_for_is_off() -> None:
    assert report()["routes"]["attention"] == {
        "on": False,
        "why": "not enabled: HK_BACKEND is unset or 0",
    }


def test_a_route_is_on_if_asked_for_and_the_engine_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HK_BACKEND", "1")
    engine_says(monkeypatch, vllm=SERVED)
    assert report()["routes"]["attention"] == {"on": True, "why": ""}


@pytest.mark.parametrize(
    ("verdicts", "why"),
    [
        ({}, "no supported engine is installed"),
        ({"vllm": refused("vllm: it has no build()")}, "vllm: it has no build()"),
    ],
)
def test_a_route_is_off_because_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, verdicts: dict[str, Verdict], why: str
) -> None:
    monkeypatch.setenv("HK_BACKEND", "attention")
    engine_says(monkeypatch, **verdicts)
    assert report()["routes"]["attention"] == {"on": False, "why": why}


def test_a_bad_environment_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_BACKEND", "gemm")
    assert "HK_BACKEND='gemm' is not valid" in report(1)["routes"]["attention"]["why"]


def test_a_bad_value_is_told_once_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVICE", "gpu")
    result = CliRunner().invoke(app, ["status"])
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if "HK_DEVICE" in line]
    assert line.endswith("emulated:gfx950"), "the whole list of valid values"
    assert "route" not in result.stdout


def test_a_variable_that_is_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVIC", "hip")
    said = "HK_DEVIC is not a variable of hk_backend: did you mean HK_DEVICE?"
    assert report()["notes"] == [said]
    assert said in CliRunner().invoke(app, ["status"]).stdout


@pytest.mark.usefixtures("not_held")
def test_amx_that_is_advertised_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVICE", "cpu:portable")
    monkeypatch.setattr(machine, "advertises_amx", lambda: True)
    monkeypatch.setattr(_cpu, "why_no_amx", lambda: "no leave")
    said = "cpu:portable does not use AMX, which the processor advertises: no leave"
    get_config.cache_clear()
    try:
        assert said in report()["notes"]
        monkeypatch.setattr(machine, "advertises_amx", lambda: False)
        assert report()["notes"] == []
    finally:
        get_config.cache_clear()


def test_a_build_without_some_instruction_sets_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "advertises_amx", lambda: False)
    monkeypatch.setattr(_cpu, "left_out_isas", lambda: ["amx", "avx512"])
    said = "this build has no kernels for cpu:amx, cpu:avx512 (HK_ISA_LEVELS=native)"
    assert status.unused_isas("cpu:avx2", SERVED) == [said]
    monkeypatch.setattr(_cpu, "left_out_isas", list)
    assert status.unused_isas("cpu:avx2", SERVED) == []


def test_no_word_of_amx_where_the_device_cannot_run() -> None:
    assert status.unused_isas("cpu:portable", refused("broken")) == []
    assert status.unused_isas("emulated:gfx950", SERVED) == []


def test_the_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"hk-backend {__version__}\n")


def test_a_device_that_cannot_run_switches_routes_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_BACKEND", "1")
    monkeypatch.setattr(status, "resolve_device", lambda: ("hip", refused("no such device")))
    data = report()
    assert data["device"] == {"name": "hip", "on": False, "why": "no such device"}
    assert data["routes"]["attention"] == {"on": False, "why": "no such device"}


def test_an_engine_check_that_raises_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = "vllm"

        def load(self) -> None:
            raise ImportError("libnuma.so.1: cannot open shared object file")

    monkeypatch.setattr(machine, "version_of", lambda *names: "0.32.0")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Broken()])
    verdict = status.engine_verdicts("attention")["vllm"]
    assert verdict == refused("vllm: ImportError: libnuma.so.1: cannot open shared object file")


def test_an_engine_s_own_warnings_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    class Warns:
        name = "sglang"

        def load(self) -> Callable[[str], Verdict]:
            warnings.warn("Only CUDA supports AWQ currently.", stacklevel=1)
            return lambda route: SERVED

    monkeypatch.setattr(machine, "version_of", lambda *names: "0.5.23")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Warns()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert status.engine_verdicts("attention") == {"sglang": SERVED}


def test_torch_s_line_about_triton_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's import makes torch.library look for Triton, which no CPU needs."""
    said: list[logging.LogRecord] = []
    torch_library = logging.getLogger("torch._library.triton")
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[method-assign]
    monkeypatch.setattr(torch_library, "handlers", [handler])

    class Looks:
        name = "vllm"

        def load(self) -> Callable[[str], Verdict]:
            torch_library.warning("Triton not available, find_triton_kernels = []")
            return lambda route: SERVED

    monkeypatch.setattr(machine, "version_of", lambda *names: "0.32.0")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Looks()])
    assert status.engine_verdicts("attention") == {"vllm": SERVED}
    assert said == []
    torch_library.warning("a user's own")
    assert len(said) == 1


def test_the_text_names_route_and_reason() -> None:
    result = CliRunner().invoke(app, ["status"])
    assert result.exit_code == 0
    assert "attention: off" in result.stdout
    assert "HK_BACKEND is unset or 0" in result.stdout
