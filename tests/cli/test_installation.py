"""What `hk-backend doctor` names of an installation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hk_backend
from hk_backend.cli import installation
from hk_backend.kernels import arches, catalogue
from tests.cli.machines import hip_is, installed, our_package, python_says

pytestmark = pytest.mark.usefixtures("healthy_machine")

HERE = Path(hk_backend.__file__).parents[1]


@pytest.mark.parametrize(
    ("tag", "how"),
    [
        ("cp312-cp312-manylinux_2_28_x86_64", "wheel"),
        ("cp312-cp312-linux_x86_64", "source build"),
    ],
)
def test_a_wheel_for_every_machine_or_for_its_builder_s(
    monkeypatch: pytest.MonkeyPatch, tag: str, how: str
) -> None:
    our_package(monkeypatch, tag)
    found = installation.check_installation()
    assert (found.severity, found.what) == ("fact", f"{how} ({tag}) in {HERE}")


def test_an_editable_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    our_package(monkeypatch, "cp311-cp311-linux_x86_64", editable=HERE, folder=tmp_path)
    found = installation.check_installation()
    assert (found.severity, found.what) == ("fact", f"editable source build in {HERE}")


def test_a_checkout_that_hides_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    our_package(monkeypatch, folder=tmp_path)
    found = installation.check_installation()
    assert (found.severity, found.remedy) == ("note", "unset PYTHONPATH; cd /")
    assert found.what.startswith(f"{HERE / 'hk_backend'} is imported, and not what is installed")
    assert found.what.endswith(f" in {tmp_path}")


def test_every_code_object_is_counted() -> None:
    found = installation.check_code_objects()
    kernels = [entry for arch in arches() for entry in catalogue(arch).kernels]
    files = {entry.path for entry in kernels}
    size = sum(path.stat().st_size for path in files)
    assert found.severity == "fact"
    assert f" in {len(files)} code objects, all whole ({size} bytes)" in found.what
    for arch in arches():
        assert f"{len(catalogue(arch).kernels)} kernels for {arch}" in found.what


def test_torch_s_hip_runtime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/env/site-packages/_rocm_sdk_core/lib/libamdhip64.so.7"
    hip_is(monkeypatch, path=path, source="ROCm's pip packages", rocm="7.0")
    found = installation.check_hip_library()
    assert (found.severity, found.what) == ("fact", f"{path}, from ROCm's pip packages")


def test_a_second_hip_runtime_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    hip_is(monkeypatch, path="/a/libamdhip64.so", others="/b/libamdhip64.so", rocm="7.0")
    found = installation.check_hip_library()
    assert found.severity == "note"
    assert "torch uses /a/libamdhip64.so, and a second HIP runtime is mapped: /b/" in found.what


def test_what_a_process_says_of_its_hip_runtime(capsys: pytest.CaptureFixture[str]) -> None:
    """Of this torch, a CPU build."""
    installation.print_hip_library()
    answer = json.loads(capsys.readouterr().out)
    assert (answer["path"], answer["rocm"], answer["others"]) == ("", "", "")
    assert "torch is not a ROCm build" in answer["why"]


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    found = installation.check_ray()
    assert (found.severity, found.what) == ("skipped", "Ray is not installed")


def test_ray_with_sglang_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, sglang="0.5.23")
    assert "SGLang's Ray actors load no plugin" in installation.check_ray().what


def test_a_vllm_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    python_says(monkeypatch, "ImportError: no vllm.ray", 1, about="print_left_out")
    found = installation.check_ray()
    assert (found.severity, found.what) == (
        "skipped",
        "vLLM cannot be asked: ImportError: no vllm.ray",
    )
