"""Samples of tests/ops on an emulated processor (bochs.py): they execute the host kernels' code for
each level, on any machine."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.models import ROOT
from tests.processes import python

pytestmark = [
    pytest.mark.source_proof("csrc/cpu", "tests/cpu"),
    pytest.mark.x86_64,
]  # the emulated processor has this one's memory, and its code in it


class Sample(NamedTuple):
    """Tests of tests/ops on one level of the extension.

    `modules`: of the tests. `kernels`: what they must call. `tests`: how many, as many of each
    module; 0: all. `named`: pytest's -k.
    """

    modules: tuple[str, ...]
    kernels: set[str]
    tests: int = 0
    named: str = ""


ABOVE = Sample(
    ("tests.ops.test_linear_bf16", "tests.ops.test_attention_pairs"),
    {"pack", "prepare", "row_max", "multiply", "multiply_skinny", "run", "join"},
    named="test_linear_bf16 or test_splits",
)
"""The levels above AVX-512 have tests of what they compute in another way. Their other kernels are
compiled to the same instructions."""
SAMPLES = {
    "avx512": Sample(
        (
            *("tests.ops.test_linear_integers", "tests.ops.test_attention_shapes"),
            *("tests.ops.test_attention_masks", "tests.ops.test_attention_splits"),
            *("tests.ops.test_merge", "tests.ops.test_linear", "tests.ops.test_linear_rotated"),
            *("tests.ops.test_look_up", "tests.ops.test_quantize"),
        ),
        {"run", "join", "merge", "pack", "prepare", "multiply", "multiply_skinny"}
        | {"quantize_row", "look_up"},
        tests=60,
    ),
    "avx512_bf16": ABOVE,
    "amx": ABOVE,
}


@pytest.mark.parametrize("level", SAMPLES)
def test_a_sample(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level passes a sample, also where the processor has it; some instructions are
    interpreted."""
    monkeypatch.delenv("HK_TEST_PROOF", raising=False)  # the sample has no records
    sample = SAMPLES[level]
    plugin = ["-p", "tests.cpu.emulated_isa", f"--emulated-isa={level}"]
    if sample.tests:
        plugin.append(f"--emulated-sample={sample.tests}")
    words = ("-k", sample.named, "--pyargs", *sample.modules)
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *words, cwd=ROOT)
    printed = done.stdout + done.stderr
    all_passed = rf"^{sample.tests or '[0-9]+'} passed(, [0-9]+ deselected)? in"
    assert re.search(all_passed, printed, re.MULTILINE), printed
    [calls] = re.findall(r"^emulated calls: (.*)$", printed, re.MULTILINE)
    assert sample.kernels <= set(re.findall(r"(\w+) \d+", calls)), printed
    assert re.search(r"^interpreted instructions: [1-9]", printed, re.MULTILINE), printed
