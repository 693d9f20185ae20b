"""`hk-backend doctor` as a command: its output and exit code, and the interpreters it starts."""

from __future__ import annotations

import json
import time
from subprocess import CompletedProcess

import pytest
from typer.testing import CliRunner

from hk_backend.cli import doctor, interpreter, status
from hk_backend.cli.app import app
from hk_backend.terms.verdict import SERVED, Verdict, refused
from tests.cli.machines import broken_torch, no_engine

pytestmark = pytest.mark.usefixtures("healthy_machine")

REALLY = interpreter.run, interpreter.start


def test_json_of_a_healthy_machine() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    data = json.loads(result.stdout)
    assert result.exit_code == 0
    assert data["healthy"] is True
    assert data["findings"] == []
    assert data["skipped"] == {"libnuma": "vLLM's CPU build is not installed"}
    assert len(data["passed"]) == len(doctor.CHECKS) - 1
    assert set(data["facts"]) == {"installation", "device", "code_objects", "hip_library", "ray"}


def test_what_is_named_for_people() -> None:
    lines = CliRunner().invoke(app, ["doctor"]).stdout.splitlines()
    named = dict(line.split(maxsplit=1) for line in lines if not line.startswith("skipped"))
    assert named["installation"].startswith("wheel (cp311-cp311-manylinux_2_35_x86_64) in /")
    assert named["hip_library"] == "none: torch is not a ROCm build"
    assert named["ray"].startswith("vLLM copies HK_BACKEND")


def test_json_and_exit_code_of_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    no_engine(monkeypatch)
    result = CliRunner().invoke(app, ["doctor", "--json"])
    data = json.loads(result.stdout)
    assert result.exit_code == 1
    assert data["healthy"] is False
    assert [(f["check"], f["severity"]) for f in data["findings"]] == [("engine", "problem")]
    assert set(data["skipped"]) == {
        "libnuma", "engine_imports", "plugin", "contract", "ray", "vllm_command", "sglang_platform"
    }  # fmt: skip
    assert not {"engine", *data["skipped"]} & set(data["passed"])


def test_what_needs_torch_is_skipped_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broken_torch(monkeypatch)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    fine = next(line for line in lines if line.startswith("fine"))
    for check in ("extension", "device"):
        assert f"skipped  {check}: it needs torch" in lines
        assert check not in fine
    assert "skipped  contract: vLLM cannot be imported" in lines


def test_each_interpreter_is_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine takes ten seconds to import: once, beside the others, and never in this process."""
    asked: list[str] = []

    def run(command: list[str], **_: object) -> CompletedProcess[str]:
        time.sleep(0.05)  # a check that asks meanwhile waits for this one
        asked.append(command[-1])
        return CompletedProcess(command, 0, "{}", "")

    python, start = REALLY
    monkeypatch.setattr(interpreter, "run", python)
    monkeypatch.setattr(interpreter, "start", start)
    monkeypatch.setattr(interpreter.subprocess, "run", run)
    told: list[str] = []
    start.cache_clear()
    doctor.examine(told.append)
    start.cache_clear()
    assert sorted(asked) == sorted(doctor.probes())
    assert len(asked) == 5
    assert told[0] == f"1/{len(doctor.CHECKS)}  environment"
    assert len(told) == len(doctor.CHECKS)


@pytest.mark.parametrize("printed", ["", "\n", "bye", "{}\nbye", '["attention"]', "null"])
def test_a_plugin_without_an_answer(printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine may print what it likes when it is imported, and when its process ends."""
    monkeypatch.setattr(interpreter, "run", lambda code: CompletedProcess([], 0, printed, ""))
    found = doctor.check_contract()
    assert found is not None
    assert (found.check, found.severity) == ("contract", "skipped")
    line = (printed.split() or [""])[-1]
    assert found.what == (
        "vLLM's plugin cannot be asked: expected a JSON object in the last line of its output, "
        f"found {line!r}"
    )


def test_what_a_probe_prints(capsys: pytest.CaptureFixture[str]) -> None:
    def verdicts(route: str) -> dict[str, Verdict]:
        return {"vllm": SERVED if route == "linear" else refused("vllm: no build()")}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(status, "engine_verdicts", verdicts)
        exec(doctor.engine_probe("vllm").partition("\n")[2])
    assert json.loads(capsys.readouterr().out) == {"attention": "vllm: no build()"}


def test_a_note_alone_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HK_BACKEND")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "note" in result.stdout
    assert "export HK_BACKEND=1" in result.stdout
