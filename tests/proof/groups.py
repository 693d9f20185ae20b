"""The groups of proofs that `make prove` runs one after another: of kernels, and of each engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.proof.proofs import SOURCE
from tests.suite import parts


@dataclass(frozen=True)
class Group:
    """Proofs that one pytest runs.

    `paths`: where they lie. `spread`: how pytest-xdist hands them out. `sglang`: they need SGLang's
    environment, not vLLM's.
    """

    name: str
    paths: Sequence[str]
    spread: Sequence[str]
    sglang: bool = False

    def owns(self, source: str) -> bool:
        """Whether a file of records, by its name, holds this group's."""
        engines = {SOURCE.format(name) for name in ("vllm", "sglang")}
        return source == SOURCE.format(self.name) or (self is KERNELS and source not in engines)


ONE_BY_ONE = ("--dist", "load", "--maxschedchunk", "1")
BY_FILE = ("--dist", "loadfile")
"""Cases of one file share engines."""
KERNELS = Group("kernels", ("tests/kernels", "tests/devices/hip/test_self_check.py"), ONE_BY_ONE)
VLLM = Group("vllm", (*parts.VLLM, *parts.ROCM), BY_FILE)
SGLANG = Group("sglang", parts.SGLANG, BY_FILE, sglang=True)
ALL = {group.name: group for group in (KERNELS, VLLM, SGLANG)}
