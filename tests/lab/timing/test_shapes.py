"""The option `--shape`: its meaning, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from hk_backend.kernels.catalogue import MEASURING, catalogue
from hk_backend.lab.timing import shapes
from hk_backend.lab.timing.workloads import attention_prefill as attention
from hk_backend.lab.timing.workloads import gemm, quantize_fp8
from tests.lab.timing.launches import GEMM, PACKED, PAGED, QUANTIZE, WINDOWED, entry


def attention_shape(kernel: str, text: str) -> attention.Shape:
    shape = shapes.parse(entry(kernel), text).shape
    assert isinstance(shape, attention.Shape)
    return shape


@pytest.mark.parametrize("keys", ["cached=0+2000", "keys=512+2064"])
def test_lengths_of_each_request(keys: str) -> None:
    shape = attention_shape(PAGED, f"heads=32/8,tokens=512+64,{keys},causal,block_size=32")
    assert shape == attention.Shape([512, 64], [512, 2064], 32, 8, causal=True, block_size=32)


def test_a_list_is_repeated_by_the_batch_and_one_number_holds_for_all() -> None:
    shape = attention_shape(PACKED, "heads=2/1,tokens=5+7,cached=10,batch=2")
    assert shape.queries == [5, 7, 5, 7]
    assert shape.keys == [15, 17, 15, 17]


def test_a_gemm() -> None:
    workload = shapes.parse(entry(GEMM), "n=20,k=30,m=10")
    assert workload.shape == gemm.Shape(10, 20, 30)
    assert workload.text == "m=10, n=20, k=30"
    assert np.prod(workload.launch().grid) == 1


def test_rows_to_quantise() -> None:
    workload = shapes.parse(entry(QUANTIZE), "k=30,m=10")
    assert workload.shape == quantize_fp8.Shape(10, 30)
    assert workload.text == "m=10, k=30"
    assert np.prod(workload.launch().grid) == 10


@pytest.mark.parametrize(
    ("kernel", "text", "message"),
    [
        (GEMM, "m=1,n=2", "k is missing; valid: k=NUMBER, 1 to 131072"),
        (GEMM, "m=1,n=2,k=0", "k=0: '0'; valid: 1 to 131072"),
        (GEMM, "m=1,n=2,k=1e3", "k=1e3: '1e3'; valid: 1 to 131072"),
        (GEMM, "m=1,n=2,k=131073", "k=131073: '131073'; valid"),
        (GEMM, "m=1+2,n=2,k=3", "m=1.2; valid: one number"),
        (GEMM, "m=1,n=2,k=3,m=4", "m is there twice"),
        (GEMM, "m=1,n=2,k=3,causal", "'causal' has no name of a size; valid: m, n, k"),
        (QUANTIZE, "m=4", "k is missing; valid: k=NUMBER, 1 to 131072"),
        (QUANTIZE, "m=4,n=4,k=4", "'n=4' has no name of a size; valid: m, k"),
        (PACKED, "heads=4/4", "tokens is missing; valid: tokens as in tokens=4096"),
        (PACKED, "tokens=4", "heads is missing; valid: heads as in heads=64/8"),
        (PACKED, "tokens=4,heads=8", "heads=8; valid: query heads/KV heads, as in 64/8"),
        (PACKED, "tokens=4,heads=8/0", "heads=8/0; valid"),
        (PACKED, "tokens=4,heads=8/3", "heads 8/3; valid: a multiple of KV heads"),
        (PACKED, "tokens=4,heads=8/8,causal=1", "'causal=1'; valid: causal$"),
        (PACKED, "tokens,heads=8/8", "'tokens'; valid: tokens=NUMBER"),
        (PACKED, "tokens=4,heads=8/8,keys=4,cached=0", "keys and cached say the same"),
        (PACKED, "tokens=4,heads=8/8,keys=3", "as many keys or more"),
        (PACKED, "tokens=4+5+6,heads=8/8,cached=3+4", "2 numbers for 3 requests; valid: one"),
        (PACKED, "tokens=4,heads=8/8,block_size=16", "reads packed keys; valid: with a paged"),
        (PAGED, "tokens=4,heads=8/8,block_size=24", "block_size 24; valid: a multiple of 16"),
        (PAGED, "tokens=4,heads=8/8,causal,window=2", "has none; valid: with a kernel of the mask"),
        (WINDOWED, "tokens=4,heads=8/8,window=2", "window 2; valid: 1 or more, causal"),
        (PACKED, "tokens=99999,heads=4096/8,batch=4", "workgroups; valid: up to 1,048,576"),
    ],
)
def test_impossible_shapes_are_refused(kernel: str, text: str, message: str) -> None:
    with pytest.raises(shapes.ShapeError, match=message):
        shapes.parse(entry(kernel), text)


def test_a_family_without_shapes() -> None:
    entry = next(iter(catalogue("gfx950", MEASURING).families["measure"]))
    with pytest.raises(shapes.ShapeError, match="measure has no shapes; valid: attention_decode, "):
        shapes.parse(entry, "m=1")
