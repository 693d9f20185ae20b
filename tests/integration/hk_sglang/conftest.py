"""Tests that need SGLang, on its CPU platform without its kernel package (cpu_platform/)."""

from __future__ import annotations

import os

os.environ.setdefault("SGLANG_PLATFORM", "hk_cpu")  # SGLang reads it when it is imported
