"""The Pythons that the package supports, and which of them this machine has."""

from __future__ import annotations

import subprocess
import sys

SUPPORTED = tuple(f"python3.{minor}" for minor in range(10, 14))
OURS = f"python3.{sys.version_info.minor}"
OTHERS = tuple(name for name in SUPPORTED if name != OURS)


def builds(python: str) -> bool:
    """Whether `python` is on the path, runs, and has what a wheel needs: headers and venv.

    A version manager may have a command on the path that only says that it is not installed.
    """
    headers = "os.path.exists(sysconfig.get_path('include') + '/Python.h')"
    program = f"import ensurepip, os, sys, sysconfig, venv; sys.exit(not {headers})"
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0
