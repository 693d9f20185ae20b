"""The engine that is installed in the environment of these tests: each environment has one."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.shared.linear.engine import LinearEngine

PLUGIN = "hk_sglang" if find_spec("sglang") else "hk_vllm"
"""The name of the engine's plugin, and of the folder with its tests here."""

if PLUGIN == "hk_sglang":
    os.environ.setdefault("SGLANG_PLATFORM", "hk_cpu")  # SGLang reads it when it is imported

LINEAR: LinearEngine = import_module(f"tests.integration.{PLUGIN}.linear_layers")
Environment = Callable[..., None]
"""Type of the fixture `environment`, which sets HK_* variables and has them read again."""
