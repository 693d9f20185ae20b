"""Sessions of vLLM on its ROCm platform, in processes of their own (rocm_platform.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.models import ROOT


def answers_of(session: str, *arguments: str, aiter: bool, **variables: str) -> Any:
    """What the module `session` of this folder writes, as JSON.

    Args:
        aiter: VLLM_ROCM_USE_AITER.
    """
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("HK_", "VLLM_"))
    }
    environment |= {"VLLM_ROCM_USE_AITER": str(int(aiter)), "VLLM_LOGGING_LEVEL": "WARNING"}
    run = subprocess.run(
        [sys.executable, "-m", f"tests.integration.hk_vllm.rocm.{session}", *arguments],
        cwd=ROOT,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])
