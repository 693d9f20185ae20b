"""`hk-backend doctor`: each finding, with its cause simulated, and the remedy that it names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hk_backend import _cpu, machine
from hk_backend.cli import doctor, installation
from hk_backend.cli.finding import Finding, fact
from hk_backend.terms.verdict import SERVED
from tests.cli.machines import (
    Cause,
    absent_device,
    bad_environment,
    broken_extension,
    broken_torch,
    cpu_wheel,
    cpu_wheel_without_libnuma,
    damaged_index,
    engine_without_libnuma,
    foreign_torchvision,
    foreign_torchvision_of_sglang,
    installed,
    left_out_by_ray,
    new_engine,
    no_engine,
    no_engine_on_a_cpu,
    no_kernels,
    not_installed,
    old_engine,
    old_second_engine,
    old_sglang_on_a_cpu,
    only_sglang,
    plugin_not_allowed,
    plugin_not_installed,
    plugins_installed,
    python_says,
    second_plugin_not_allowed,
    second_plugin_not_installed,
    trapping_amx,
    unknown_contract,
    unknown_second_contract,
    unusable_hip,
)

pytestmark = pytest.mark.usefixtures("healthy_machine")

FINDINGS: list[tuple[Callable[[], Finding | None], Cause, str, str]] = [
    (doctor.check_environment, bad_environment, "HK_CHECK='often'", "unset HK_CHECK"),
    (installation.check_installation, not_installed, "engines find no plugin", "pip install /"),
    (installation.check_code_objects, no_kernels, "no GPU kernels", "--force-reinstall --no-deps"),
    (installation.check_code_objects, damaged_index, "is damaged", "--force-reinstall --no-deps"),
    (installation.check_hip_library, unusable_hip, "no hipGetDevice", "--force-reinstall torch"),
    (installation.check_ray, left_out_by_ray, "copy HK_CHECK to", "non_carry_over_env_vars.json"),
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
    assert healthy is None or healthy.severity in ("skipped", "fact"), "found on a healthy machine"
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


@pytest.mark.usefixtures("not_held")
def test_the_device_is_named_and_why_it_is_without_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.status, "resolve_device", lambda: ("cpu:avx512_bf16", SERVED))
    monkeypatch.setattr(machine, "advertises_amx", lambda: False)
    assert doctor.check_device() == fact("device", "cpu:avx512_bf16")
    monkeypatch.setattr(machine, "advertises_amx", lambda: True)
    monkeypatch.setattr(_cpu, "why_no_amx", lambda: "no leave")
    found = doctor.check_device()
    assert found is not None
    assert (found.severity, found.what.partition("; ")[2]) == (
        "fact",
        "cpu:avx512_bf16 does not use AMX, which the processor advertises: no leave",
    )


def test_sglang_alone_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    only_sglang(monkeypatch)
    plugins_installed(monkeypatch, "hk_sglang")
    findings, _, _ = doctor.examine()
    assert [found.check for found in findings] == ["libnuma", "ray", "vllm_command"]
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
