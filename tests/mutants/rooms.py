"""The rooms of the product that have faults, and the tests that can reach each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Room:
    """`name`: of its file of faults. `patterns`: its source files. `faults`: how many
    `tests/mutants/draw.py` draws; 0 if they are written by hand. `tests`: what can reach them.
    `engines`: tests of whole engines that can, which only what survives all others meets.
    `sglang`: the tests need SGLang's environment.
    """

    name: str
    patterns: tuple[str, ...]
    faults: int
    tests: tuple[str, ...]
    engines: tuple[str, ...] = ()
    sglang: bool = False

    def folders(self, file: str) -> tuple[str, ...]:
        """The tests that can reach one of its files."""
        return next((tests for part, tests in NARROWER.items() if part in file), self.tests)

    def files(self, root: Path) -> list[Path]:
        """The room's source files, by name."""
        found = {path for pattern in self.patterns for path in root.glob(pattern)}
        return sorted(path for path in found if path.is_file())


VLLM = ("tests/integration/hk_vllm/e2e", "tests/integration/hk_vllm/rocm")
SGLANG = ("tests/integration/hk_sglang/e2e", "tests/integration/hk_sglang/rocm")
BOTH = ("tests/integration/engines", "tests/integration/shared")
IN_VLLM = ("tests/integration/hk_vllm", *BOTH, *(f"--ignore={folder}" for folder in VLLM))
LINEAR_OPS = tuple(
    f"tests/ops/test_{name}.py"
    for name in ("pack_weight", "linear", "linear_codes", "linear_blocks", "linear_rotated",
                 "linear_integers", "linear_bf16", "linear_numerics", "quantize")
)  # fmt: skip
ATTENTION_OPS = tuple(
    f"tests/ops/test_{name}.py"
    for name in ("merge", "attention_few_rows", "attention_masks", "attention_shapes",
                 "attention_numerics", "attention_splits", "attention_memory", "attention_paged")
)  # fmt: skip
NARROWER = {
    "csrc/cpu/attention/": ATTENTION_OPS,
    "csrc/cpu/linear/": LINEAR_OPS,
    "csrc/cpu/formats/": LINEAR_OPS,
    "csrc/emulator/timing/": (
        "tests/emulator/test_timing.py",
        "tests/emulator/test_timing_memory.py",
        "tests/lab/timing",
    ),
    "csrc/emulator/hip/": ("tests/devices/hip",),
}
"""Test folders for parts of rooms whose tests are many."""
IN_SGLANG = ("tests/integration/hk_sglang", *BOTH, *(f"--ignore={folder}" for folder in SGLANG))
EMULATOR = "tests/emulator"

ROOMS = (
    Room("routing", ("hk_backend/routing/*.py",), 12,
         ("tests/routing", "tests/ops/test_attention_errors.py", "tests/engine", *IN_VLLM), VLLM),
    Room("envelopes", ("hk_backend/ops/*.py", "hk_backend/terms/*.py"), 28,
         ("tests/terms", "tests/ops", "tests/devices", "tests/engine", "tests/quantize",
          "tests/routing"), VLLM),
    Room("planners",
         ("hk_backend/kernels/*plan.py", "hk_backend/kernels/gemm_choice.py",
          "hk_backend/kernels/masks.py", "hk_backend/kernels/row_sources.py"), 16,
         ("tests/kernels/test_attention_plan.py", "tests/kernels/test_gemm_plan.py",
          "tests/devices/hip",
          "tests/lab/timing/test_planned_attention.py", "tests/lab/timing/test_planned_gemm.py",
          "tests/lab/timing", "tests/cli", "tests/ops/test_linear_on_gfx950.py")),
    Room("launch", ("hk_backend/devices/**/*.py", "hk_backend/kernels/arguments.py"), 28,
         ("tests/devices", "tests/ops", "tests/kernels/test_arguments.py", "tests/cli",
          "tests/engine"), VLLM),
    Room("packing", ("hk_backend/engine/linear/*.py",), 14,
         ("tests/engine/linear", "tests/ops/test_pack_weight.py", *IN_VLLM), VLLM),
    Room("engine",
         ("hk_backend/engine/*.py", "hk_backend/engine/evidence/*.py"), 12,
         ("tests/engine", "tests/cli", *IN_VLLM), VLLM),
    Room("quantize", ("hk_backend/quantize/*.py",), 16, ("tests/quantize", "tests/cli")),
    Room("hk_vllm", ("integration/hk_vllm/**/*.py",), 22, IN_VLLM, VLLM),
    Room("hk_sglang", ("integration/hk_sglang/**/*.py",), 20, IN_SGLANG, SGLANG, sglang=True),
    Room("kernels", ("csrc/kernels/**/*", "csrc/include/hk/**/*"), 0, ("tests/kernels",)),
    Room("cpu", ("csrc/cpu/**/*",), 0,
         ("tests/ops/test_attention_shapes.py", "tests/ops/test_attention_masks.py", "tests/ops")),
    Room("launcher", ("csrc/hip/*",), 0,
         ("tests/devices/hip", "tests/kernels/test_workgroups.py", "tests/ops", "tests/cli")),
    Room("emulator", ("csrc/emulator/**/*",), 0, (EMULATOR, "tests/lab/timing", "tests/tiles")),
)  # fmt: skip
"""All rooms, those of Python first: a fault in them needs no compiler."""
BY_NAME = {room.name: room for room in ROOMS}
