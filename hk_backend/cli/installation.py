"""Doctor's checks of an installation, each of which names what it found, healthy or not.

They check how HK was installed, its code objects, HIP's library and the environment of Ray workers.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import hk_backend
from hk_backend.cli import interpreter
from hk_backend.cli.finding import Finding, fact, note, problem, skipped
from hk_backend.cli.known_engines import ENGINES
from hk_backend.config import PREFIX
from hk_backend.kernels import CodeObjectError, arches, catalogue

DISTRIBUTION = "hk-backend"
HIP_LIBRARY = "from hk_backend.cli import installation; installation.print_hip_library()"
RAY = "from hk_vllm import ray; ray.print_left_out()"


def probes() -> list[str]:
    """Code that these checks run in fresh interpreters."""
    asked = find_spec("ray") is not None and ENGINES["vllm"].version is not None
    return [HIP_LIBRARY, *([RAY] if asked else [])]


def pip(arguments: str) -> str:
    """The command that runs this environment's pip."""
    return f"{sys.executable} -m pip {arguments}"


REINSTALL = pip(f"install --force-reinstall --no-deps {DISTRIBUTION}")


def check_installation() -> Finding:
    """Check that the imported package is the installed one: engines find the entry points of the
    latter."""
    imported = Path(hk_backend.__file__).parent
    try:
        found = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        what = f"{imported} is imported but not installed: engines find no plugin"
        return problem(what, pip(f"install {imported.parent}"))
    how, folder = origin(found)
    if folder / imported.name != imported:
        what = f"{imported} is imported, and not what is installed: {how} in {folder}"
        return note(what, "unset PYTHONPATH; cd /")
    return fact(f"{how} in {folder}")


def origin(found: Distribution) -> tuple[str, Path]:
    """The way in which a distribution was installed, and the folder with its packages."""
    direct: dict[str, Any] = json.loads(found.read_text("direct_url.json") or "{}")
    if direct.get("dir_info", {}).get("editable"):
        return "editable source build", Path(unquote(urlparse(direct["url"]).path))
    lines = (found.read_text("WHEEL") or "").splitlines()
    tags = ", ".join(line.partition(":")[2].strip() for line in lines if line.startswith("Tag:"))
    folder = Path(str(found.locate_file("")))
    if not tags:  # the metadata of a checkout that was built in place
        return "source tree", folder
    # auditwheel tags checked wheels; without its tag a wheel only fits its builder's machine
    return f"{'wheel' if 'manylinux' in tags else 'source build'} ({tags})", folder


def check_code_objects() -> Finding:
    """Check that the package has GPU kernels, with the bytes that the catalogue records."""
    try:
        kernels = {arch: catalogue(arch).kernels for arch in arches()}
        sizes = {e.path: len(e.code_object()) for family in kernels.values() for e in family}
    except CodeObjectError as error:
        return problem(str(error), REINSTALL)
    if not sizes:
        return problem("the package has no GPU kernels", REINSTALL)
    counts = ", ".join(f"{len(family)} kernels for {arch}" for arch, family in kernels.items())
    return fact(f"{counts} in {len(sizes)} code objects, all whole ({sum(sizes.values())} bytes)")


def check_hip_library() -> Finding:
    """Check that a ROCm torch has a usable HIP runtime, and that no second one is mapped."""
    done = interpreter.run(HIP_LIBRARY)
    if done.returncode:
        return skipped(f"torch cannot be asked: {interpreter.last_line(done)}")
    hip = interpreter.answer(done)
    if hip.get("path"):
        if hip["others"]:
            what = f"torch uses {hip['path']}, and a second HIP runtime is mapped: {hip['others']}"
            return note(what, "unset LD_LIBRARY_PATH LD_PRELOAD")
        return fact(f"{hip['path']}, from {hip['source']}")
    if hip.get("rocm"):
        return problem(hip["why"], pip("install --force-reinstall torch"))
    return fact("none: torch is not a ROCm build")


def print_hip_library() -> None:
    """Print the HIP runtime of a process that has imported torch, as a line of JSON for doctor."""
    import torch

    from hk_backend.devices.base import DeviceError
    from hk_backend.devices.hip.library import mapped_library, mapped_runtimes, source

    path, why = "", ""
    try:
        path = mapped_library().path
    except DeviceError as error:
        why = str(error)
    others = [other for other in mapped_runtimes() if not path or not os.path.samefile(other, path)]
    answer = {"path": path, "why": why, "others": ", ".join(others)}
    print(json.dumps({**answer, "source": source(path), "rocm": torch.version.hip or ""}))


def check_ray() -> Finding:
    """Check that vLLM's Ray workers also get the HK_ variables that are set here."""
    if find_spec("ray") is None:
        return skipped("Ray is not installed")
    if ENGINES["vllm"].version is None:
        return skipped("vLLM is not installed, and SGLang's Ray actors load no plugin")
    done = interpreter.run(RAY)
    if done.returncode:
        return skipped(f"vLLM cannot be asked: {interpreter.last_line(done)}")
    if left_out := sorted(interpreter.answer(done)):
        what = f"vLLM does not copy {', '.join(left_out)} to its Ray workers"
        listed = "${VLLM_CONFIG_ROOT:-~/.config/vllm}/ray_non_carry_over_env_vars.json"
        return problem(f"{what}: {listed} names them", f"$EDITOR {listed}")
    ours = sorted(name for name in os.environ if name.startswith(PREFIX))
    return fact(f"vLLM copies {', '.join(ours) or 'every HK_ variable'} to its Ray workers")
