"""The host kernels' code where the processor does not have it too: samples of tests/ops, on an
emulated one (bochs.py)."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from hk_backend.devices.cpu.isas import usable_isas
from tests.models import ROOT
from tests.processes import python

pytestmark = pytest.mark.x86_64  # the emulated processor has this one's memory, and its code in it


class Sample(NamedTuple):
    """Tests of tests/ops on one level of the extension.

    `kernels`: what they must call. `tests`: how many, evenly spaced; 0: all.
    """

    files: tuple[str, ...]
    kernels: set[str]
    tests: int = 0


ABOVE = Sample(
    ("test_linear_bf16.py", "test_attention_pairs.py::test_splits"),
    {"pack", "prepare", "row_max", "multiply", "multiply_skinny", "run", "join"},
)
"""The levels above AVX-512 have tests of what they compute in another way. Their other kernels are
compiled to the same instructions."""
SAMPLES = {
    "avx512": Sample(
        (
            *("test_linear_integers.py", "test_attention_shapes.py", "test_attention_masks.py"),
            *("test_attention_splits.py", "test_merge.py", "test_linear.py"),
            *("test_linear_rotated.py", "test_look_up.py", "test_quantize.py"),
        ),
        {"run", "join", "merge", "pack", "prepare", "multiply", "multiply_skinny"}
        | {"quantize_row", "look_up"},
        tests=60,
    ),
    "avx512_bf16": ABOVE,
    "amx": ABOVE,
}


@pytest.mark.parametrize("level", [each for each in SAMPLES if each not in usable_isas()])
def test_a_sample(level: str) -> None:
    """Each level that this process cannot run itself passes a sample; some instructions are
    interpreted."""
    sample = SAMPLES[level]
    plugin = ["-p", "tests.cpu.emulated_isa", f"--emulated-isa={level}"]
    if sample.tests:
        plugin.append(f"--emulated-sample={sample.tests}")
    files = [f"tests/ops/{file}" for file in sample.files]
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *files, cwd=ROOT)
    printed = done.stdout + done.stderr
    assert re.search(rf"^{sample.tests or '[0-9]+'} passed in", printed, re.MULTILINE), printed
    [calls] = re.findall(r"^emulated calls: (.*)$", printed, re.MULTILINE)
    assert sample.kernels <= set(re.findall(r"(\w+) \d+", calls)), printed
    assert re.search(r"^interpreted instructions: [1-9]", printed, re.MULTILINE), printed
