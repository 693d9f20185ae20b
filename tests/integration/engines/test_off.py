"""A plugin that is switched off imports nothing, neither of HK nor of the engine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.integration.adapter import PLUGIN

OFF = {"hk_vllm": [{}, {"HK_BACKEND": ""}], "hk_sglang": []}[PLUGIN]
"""Environments that switch a plugin off. SGLang's offers the choice `hk` in any environment."""


@pytest.mark.parametrize("environment", [{"HK_BACKEND": "0"}, {"HK_BACKEND": " 0 "}, *OFF], ids=str)
def test_nothing_is_imported(environment: dict[str, str]) -> None:
    code = (
        f"import sys; from {PLUGIN}.plugin import register; register(); "
        "names = {name.split('.')[0] for name in sys.modules}; "
        "print(names & {'hk_backend', 'vllm', 'sglang', 'torch'})"
    )
    assert printed(code, **environment) == "set()"


def printed(code: str, **environment: str) -> str:
    """The last line that `code` prints in a new interpreter; HK_* come only from `environment`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HK_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]
