"""The host kernels' code where the processor does not have it too: samples of tests/ops, on an
emulated one (bochs.py)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from hk_backend.devices.cpu.isas import usable_isas
from tests.models import ROOT

pytestmark = pytest.mark.x86_64  # the emulated processor has this one's memory, and its code in it


@dataclass(frozen=True)
class Sample:
    """Tests of one file of tests/ops on one level of the extension.

    `kernels`: what they must call. `tests`: how many, evenly spaced; 0: all.
    `interpreted`: whether these kernels execute instructions that only the interpreter knows.
    """

    level: str
    file: str
    kernels: set[str]
    tests: int = 4
    interpreted: bool = False

    def __str__(self) -> str:
        return f"{self.level}-{self.file}"


BF16 = {"pack", "prepare", "row_max", "multiply", "multiply_skinny"}
PAIRS = "test_attention_pairs.py::test_splits"
SAMPLES = (
    Sample("avx512", "test_linear_integers.py", {"prepare", "multiply"}, interpreted=True),
    Sample("avx512", "test_attention_shapes.py", {"run"}),
    Sample("avx512", "test_attention_masks.py", {"run"}),
    Sample("avx512", "test_attention_splits.py", {"run", "join"}),
    Sample("avx512", "test_merge.py", {"merge"}),
    Sample("avx512", "test_linear.py", {"pack", "multiply", "multiply_skinny", "prepare"}),
    Sample("avx512", "test_linear_rotated.py", {"prepare", "quantize_row"}),
    Sample("avx512", "test_look_up.py", {"pack", "look_up"}),
    Sample("avx512", "test_quantize.py", {"quantize_row"}),
    Sample("avx512_bf16", "test_linear_bf16.py", BF16, tests=0, interpreted=True),
    Sample("amx", "test_linear_bf16.py", BF16, tests=0, interpreted=True),
    Sample("avx512_bf16", PAIRS, {"run", "join"}, tests=0, interpreted=True),
    Sample("amx", PAIRS, {"run", "join"}, tests=0, interpreted=True),
)
"""The levels above AVX-512 have tests of what they compute in another way. Their other kernels are
compiled to the same instructions."""


def needed() -> Iterator[Sample]:
    """Every sample of a level that this process cannot run itself, and a small one of others.

    There tests/ops runs on the processor, and the sample shows that the emulated one agrees.
    """
    seen: set[str] = set()
    for sample in SAMPLES:
        if sample.level not in usable_isas():
            yield sample
        elif sample.level not in seen:
            yield replace(sample, kernels={"multiply"})
        seen.add(sample.level)


def run(sample: Sample, *options: str) -> str:
    """The output of pytest for a sample."""
    plugin = ["-p", "tests.cpu.emulated_isa", f"--emulated-isa={sample.level}", *options]
    if sample.tests:
        plugin.append(f"--emulated-sample={sample.tests}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin]
    done = subprocess.run(
        [*command, f"tests/ops/{sample.file}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def called(printed: str) -> set[str]:
    [calls] = re.findall(r"^emulated calls: (.*)$", printed, re.MULTILINE)
    return set(re.findall(r"(\w+) \d+", calls))


def interpreted(printed: str) -> int:
    [count] = re.findall(r"^interpreted instructions: (\d+)$", printed, re.MULTILINE)
    return int(count)


@pytest.mark.parametrize("sample", list(needed()), ids=str)
def test_a_sample(sample: Sample) -> None:
    printed = run(sample)
    assert re.search(rf"^{sample.tests or '[0-9]+'} passed in", printed, re.MULTILINE), printed
    assert sample.kernels <= called(printed), printed
    assert (interpreted(printed) > 0) == sample.interpreted, printed


def test_a_kernel_that_does_nothing_is_seen() -> None:
    """The control."""
    printed = run(Sample("avx512", "test_merge.py", {"merge"}), "--emulated-without=merge")
    assert re.search(r"^4 failed in", printed, re.MULTILINE), printed
