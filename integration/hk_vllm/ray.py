"""HK's variables in vLLM's Ray workers.

Ray starts workers with the environment of their node. vLLM adds variables that it knows by name or
by prefix. Its default executor copies everything. The older one
(VLLM_USE_RAY_V2_EXECUTOR_BACKEND=0) and the engine cores of `--data-parallel-backend ray` copy only
those. A variable in which users name further prefixes reaches both; a platform's
`additional_env_vars` only the former.
"""

from __future__ import annotations

import json
import os

from hk_backend.config import PREFIX

PREFIXES = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"


def copy_to_workers() -> None:
    """Makes vLLM copy every HK_ variable to Ray workers of this process; idempotent."""
    named = [prefix.strip() for prefix in os.environ.get(PREFIXES, "").split(",")]
    prefixes = [prefix for prefix in named if prefix]
    if PREFIX not in prefixes:
        os.environ[PREFIXES] = ",".join([*prefixes, PREFIX])


def left_out() -> list[str]:
    """The HK_ variables of this environment that vLLM's own list of variables to copy lacks."""
    from vllm.ray.ray_env import get_env_vars_to_copy

    copied = get_env_vars_to_copy()
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in copied)


def print_left_out() -> None:
    """Prints the variables left out, as a line of JSON `{variable: value}`, for doctor.

    The plugin's prefix is added to vLLM's list first, as in a registered plugin.
    """
    copy_to_workers()
    print(json.dumps({name: os.environ[name] for name in left_out()}))
