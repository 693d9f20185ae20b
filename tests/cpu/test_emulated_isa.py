"""The host kernels' code where the processor does not have it too: samples of tests/ops, on an
emulated one (bochs.py)."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from hk_backend.devices.cpu.isas import TORCH_LIMIT
from tests.models import ROOT

pytestmark = pytest.mark.x86_64  # the emulated processor has this one's memory, and its code in it

COMPILED = ("avx512",)
"""Levels of the extension that the emulated processor executes."""
TESTS = 4
"""The tests of one sample."""
SAMPLES = {
    "test_attention_shapes.py": {"run"},
    "test_attention_masks.py": {"run"},
    "test_attention_splits.py": {"run", "join"},
    "test_merge.py": {"merge"},
    "test_linear.py": {"pack", "multiply", "multiply_skinny", "prepare"},
    "test_linear_integers.py": {"prepare", "multiply"},
    "test_linear_rotated.py": {"prepare", "quantize_row"},
    "test_look_up.py": {"pack", "look_up"},
    "test_quantize.py": {"quantize_row"},
}
"""Files of tests/ops, and kernels that their tests call."""
INTERPRETED = {"avx512": {"test_linear_integers.py"}}
"""Samples in which a level's kernels execute instructions that only the interpreter knows."""


def run(level: str, file: str, *options: str) -> str:
    """The output of pytest for a sample."""
    plugin = ["-p", "tests.cpu.emulated_isa", f"--emulated-isa={level}", *options]
    sample = [f"--emulated-sample={TESTS}", f"tests/ops/{file}"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *sample]
    # what holds this process to other instructions holds no emulated processor
    environment = {name: value for name, value in os.environ.items() if name != TORCH_LIMIT}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def called(printed: str) -> set[str]:
    [calls] = re.findall(r"^emulated calls: (.*)$", printed, re.MULTILINE)
    return set(re.findall(r"(\w+) \d+", calls))


def interpreted(printed: str) -> int:
    [count] = re.findall(r"^interpreted instructions: (\d+)$", printed, re.MULTILINE)
    return int(count)


@pytest.mark.parametrize("level", COMPILED)
@pytest.mark.parametrize("file", SAMPLES)
def test_a_sample(level: str, file: str) -> None:
    printed = run(level, file)
    assert re.search(rf"^{TESTS} passed", printed, re.MULTILINE), printed
    assert SAMPLES[file] <= called(printed), printed
    assert (interpreted(printed) > 0) == (file in INTERPRETED[level]), printed


def test_a_kernel_that_does_nothing_is_seen() -> None:
    """The control."""
    printed = run("avx512", "test_merge.py", "--emulated-without=merge")
    assert re.search(rf"^{TESTS} failed", printed, re.MULTILINE), printed
