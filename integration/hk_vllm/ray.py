"""HK's variables in vLLM's Ray workers.

Ray starts them with the environment of their node, to which vLLM adds what it knows by name or by
prefix. Its default executor copies everything; the older one (VLLM_USE_RAY_V2_EXECUTOR_BACKEND=0)
and the engine cores of `--data-parallel-backend ray` copy only those. The variable in which users
name further prefixes reaches both; a platform's `additional_env_vars` only the former.
"""

from __future__ import annotations

import json
import os

from hk_backend.config import PREFIX

PREFIXES = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"


def copy_to_workers() -> None:
    """Have vLLM copy every HK_ variable to the Ray workers that this process starts; idempotent."""
    named = [prefix.strip() for prefix in os.environ.get(PREFIXES, "").split(",")]
    prefixes = [prefix for prefix in named if prefix]
    if PREFIX not in prefixes:
        os.environ[PREFIXES] = ",".join([*prefixes, PREFIX])


def left_out() -> list[str]:
    """The HK_ variables of this environment that are not on vLLM's own list of what it copies."""
    from vllm.ray.ray_env import get_env_vars_to_copy

    copied = get_env_vars_to_copy()
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in copied)


def print_left_out() -> None:
    """`{variable: value}` of them, once the plugin is registered, as a line of JSON; for doctor."""
    copy_to_workers()
    print(json.dumps({name: os.environ[name] for name in left_out()}))
