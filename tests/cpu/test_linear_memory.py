"""Memory that packing and multiplying take beside their tensors: the peak of an own process."""

from __future__ import annotations

import sys

import pytest

from tests.forked import Programs

PROGRAM = """
import torch
from hk_backend.ops import linear, pack_weight

def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) * 1024

def growth(call):
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # the peak starts over at what is resident now
    before = memory("VmRSS") - memory("RssFile")
    kept.append(call())
    return memory("VmHWM") - memory("RssFile") - before  # a fork maps libraries on first use

def ones(*shape):
    return torch.ones(*shape, dtype=torch.bfloat16)

kept = []
torch.set_num_threads(2)
linear(ones(64, 64), pack_weight(ones(64, 64), "bf16"))
weight, x, wide = ones(4096, 4096), ones(16384, 1024), pack_weight(ones(16, 1024), "bf16")
rows, tall = ones(64, 1024), pack_weight(ones(8192, 1024), "bf16")
print(growth(lambda: pack_weight(weight, "bf16")))
print(growth(lambda: pack_weight(weight.T, "bf16")))
print(growth(lambda: linear(x, wide)))
print(growth(lambda: linear(rows, tall)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_grows_beside_the_results(programs: Programs) -> None:
    """Float32 copies would take 64 MiB (the 4096 x 4096 weight, or 16384 rows of 1024), or 32 (the
    weight of 8192 columns); a bfloat16 copy of the transposed weight 32."""
    grown = programs.check(PROGRAM).split()
    packed, transposed, many_rows, many_columns = (int(n) / 2**20 for n in grown)
    for weight in (packed, transposed):
        assert 31 < weight < 34, "32 MiB are the packed weight itself"
    assert many_rows < 12  # the result, half a mebibyte, and four of prepared rows per thread
    assert many_columns < 4  # the result: one mebibyte
