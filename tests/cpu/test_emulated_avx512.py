"""The host kernels' AVX-512 code where the processor has none too: a sample of tests/ops, on an
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

TESTS = 4
"""Of each sample."""
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


def run(file: str, *options: str) -> str:
    """What pytest prints of a sample."""
    plugin = ["-p", "tests.cpu.emulated_avx512", f"--emulated-sample={TESTS}", *options]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin]
    # what holds this process to other instructions holds no emulated processor
    environment = {name: value for name, value in os.environ.items() if name != TORCH_LIMIT}
    done = subprocess.run(
        [*command, f"tests/ops/{file}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def called(printed: str) -> set[str]:
    [calls] = re.findall(r"^emulated calls: (.*)$", printed, re.MULTILINE)
    return set(re.findall(r"(\w+) \d+", calls))


@pytest.mark.parametrize("file", SAMPLES)
def test_a_sample(file: str) -> None:
    printed = run(file)
    assert re.search(rf"^{TESTS} passed", printed, re.MULTILINE), printed
    assert SAMPLES[file] <= called(printed), printed


def test_a_kernel_that_does_nothing_is_seen() -> None:
    """The control."""
    printed = run("test_merge.py", "--emulated-without=merge")
    assert re.search(rf"^{TESTS} failed", printed, re.MULTILINE), printed
