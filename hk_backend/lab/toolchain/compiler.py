"""Finds the compiler of the kernels and the LLVM tools next to it.

Version 22 is the oldest whose gfx950 code this project has checked. ROCm's own clang works too if
it is at least as new. `make sweep` checks another one (docs/testing.md).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

OLDEST = 22
TIMEOUT = 2400  # seconds; the longest compilation takes a tenth of this on a Xeon of 2.3 GHz
ROCM_CLANG = "/opt/rocm/llvm/bin/clang++"
REMEDY = (
    f"apt-get install clang-{OLDEST} llvm-{OLDEST} lld-{OLDEST} "
    "(from https://apt.llvm.org where the distribution has none)"
)


class ToolchainError(RuntimeError):
    """No compiler is new enough, or one of its tools is missing, failed or did not finish."""


@dataclass(frozen=True)
class Toolchain:
    """A clang compiler, and the LLVM tools in the folder that holds it."""

    clang: Path
    version: str  # first line of `clang --version`, e.g. "Debian clang version 22.1.8 (1~deb12u1)"

    def tool(self, name: str) -> Path:
        """Path of an LLVM tool. Raises `ToolchainError` if it is missing."""
        path = self.clang.parent / name
        if not path.exists():
            raise ToolchainError(f"{name} is not next to {self.clang}: {REMEDY}")
        return path

    def run(
        self,
        name: str,
        *arguments: str | Path,
        cwd: Path | None = None,
        stdin: str | None = None,
        timeout: float = TIMEOUT,
    ) -> str:
        """Runs a tool and returns its standard output.

        Raises `ToolchainError` with the tool's own message, or after `timeout` seconds.
        """
        command: Sequence[str | Path] = [self.tool(name), *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise ToolchainError(f"{name} did not finish within {timeout:g} s") from None
        if done.returncode:
            raise ToolchainError(f"{name} failed:\n{done.stderr.strip()}")
        return done.stdout


def find(compiler: str | None = None) -> Toolchain:
    """Returns `compiler` if given, else the first one that is new enough. Raises
    `ToolchainError`."""
    seen = []
    for name in [compiler] if compiler else _candidates():
        path = shutil.which(name)
        if path is None:
            continue
        version = _version(path)
        major = re.search(r"version (\d+)", version)
        if major and int(major[1]) >= OLDEST:
            return Toolchain(Path(path).resolve().parent / "clang++", version)
        seen.append(f"{path} is {version!r}")
    found = "; ".join(seen) or (f"there is no {compiler}" if compiler else "there is none here")
    raise ToolchainError(f"the kernels need clang {OLDEST} or newer ({found}): {REMEDY}")


def _candidates() -> Iterator[str]:
    yield f"clang++-{OLDEST}"
    yield ROCM_CLANG
    yield "clang++"


def _version(path: str) -> str:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or [""])[0]
