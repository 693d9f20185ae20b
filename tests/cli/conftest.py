"""Machines that `hk-backend doctor` may find: a healthy one, and its possible faults."""

from __future__ import annotations

import json
from importlib.metadata import PathDistribution
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest

import hk_backend
from hk_backend import machine
from hk_backend.cli import doctor, installation, interpreter
from hk_backend.devices.cpu.isas import LIMITS

VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23", "torch": "2.13.0+cpu"}
UNSET = (
    *("HK_DEVICE", "HK_STRICT", "HK_CHECK"),
    *("VLLM_PLUGINS", "SGLANG_PLUGINS", "SGLANG_PLATFORM"),
)


class Machine:
    """A machine that is healthy until a test changes it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.setattr, self.setenv, self.delenv = patch.setattr, patch.setenv, patch.delenv
        for name in UNSET:
            self.delenv(name, raising=False)
        self.setenv("HK_BACKEND", "1")
        self.has()
        self.python_says()
        self.setattr(machine, "amx_traps", lambda: False)
        self.setattr(doctor, "find_library", lambda name: "libnuma.so.1")
        for module in (doctor, installation):
            self.setattr(module, "find_spec", lambda name: object())
        self.our_package()
        self.plugins("hk_vllm", "hk_sglang")

    def has(self, **versions: str) -> None:
        """Installs other distributions than VERSIONS, given by name with _ for -; "" removes
        one."""
        given = {name.replace("_", "-"): version for name, version in versions.items()}
        found = {name: version for name, version in {**VERSIONS, **given}.items() if version}
        self.setattr(
            machine,
            "version_of",
            lambda *names: next((found[n] for n in names if n in found), None),
        )

    def python_says(
        self, stderr: str = "", code: int = 0, about: str = "", answer: object = None
    ) -> None:
        """Lets a fresh interpreter print `answer` as JSON if its program contains `about`."""

        def python(asked: str) -> CompletedProcess[str]:
            failed = about in asked
            said = json.dumps(answer or {}) if failed else "{}"
            said = f"what an engine prints\n{said}"
            return CompletedProcess([], code if failed else 0, said, stderr if failed else "")

        self.setattr(interpreter, "run", python)
        self.setattr(interpreter, "start", lambda code: None)

    def lacks_gpu(self) -> None:
        self.python_says("AssertionError", 1, about="cuda.is_available")

    def lacks_libnuma(self) -> None:
        self.setattr(doctor, "find_library", lambda name: None)

    def hip_is(self, **found: str) -> None:
        """Makes this HIP runtime the one that an interpreter with torch reports."""
        self.python_says(about="print_hip_library", answer={"others": "", **found})

    def plugins(self, *names: str) -> None:
        entries = [SimpleNamespace(name=name) for name in names]
        self.setattr(
            "importlib.metadata.entry_points",
            lambda group: entries if group.startswith(("vllm.", "sglang.")) else [],
        )

    def our_package(
        self,
        tag: str = "cp311-cp311-manylinux_2_35_x86_64",
        editable: Path | None = None,
        folder: Path = Path(hk_backend.__file__).parents[1],
    ) -> None:
        """Installs hk-backend as pip does: a wheel in `folder`, or the source tree `editable`."""
        about = {"WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n"}
        if editable:
            url = editable.as_uri()
            about["direct_url.json"] = json.dumps({"dir_info": {"editable": True}, "url": url})

        class Distribution(PathDistribution):
            def read_text(self, filename: Any) -> str | None:
                return about.get(filename)

        found = Distribution(folder / "hk_backend-0.1.0.dist-info")
        self.setattr(installation, "distribution", lambda name: found)

    def fails(self, module: Any, name: str, error: Exception) -> None:
        """Makes a function raise `error`."""

        def raises(*_: object) -> None:
            raise error

        self.setattr(module, name, raises)


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture
def not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the limit on instruction sets, even where the test suite runs with one."""
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)
