"""Threads of the linear operator: the same bits for any number of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from hk_backend.ops import linear, pack_weight
from tests.ops.linear_cases import KINDS, Case, make
from tests.ops.linear_oracle import check_result


@pytest.mark.parametrize(("format", "activations", "scales"), KINDS)
def test_same_bits_for_any_number_of_threads(
    format: str, activations: str, scales: str, threads: None
) -> None:
    for m in (1, 4, 17, 150):
        layer = make(Case(format, activations, scales, m=m, n=136, k=544))
        weight = layer.pack()
        results = []
        for count in (1, 2, 3, 5):
            torch.set_num_threads(count)
            assert torch.equal(layer.pack().data, weight.data)
            results.append(linear(layer.x, weight))
        for result in results[1:]:
            assert torch.equal(result, results[0])


@pytest.mark.parametrize("m", [1, 2, 16, 17, 40, 200])
def test_a_row_does_not_depend_on_the_rows_around_it(m: int, isa: str) -> None:
    """Within one kernel: the same request gives the same bits in a batch of equals."""
    for format, activations in (("bf16", "none"), ("fp8_e4m3fn", "token"), ("mxfp4", "mx")):
        layer = make(Case(format, activations, m=m, n=72, k=544))
        layer.x = layer.x[:1].expand(m, -1).contiguous()
        out = layer.run()
        assert torch.equal(out, out[:1].expand(m, -1))


def test_calls_from_several_python_threads_at_once(isa: str) -> None:
    """As an engine with several workers in one process: each call has its own scratch memory."""
    layers = [
        make(Case(format, activations, m=3 + 17 * i, n=40 + 9 * i, k=32 * (i + 3), seed=i))
        for i, (format, activations) in enumerate(
            (("bf16", "none"), ("fp8_e4m3fn", "token"), ("mxfp4", "mx"), ("fp32", "none"))
        )
    ]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda layer: layer.run(), layers * 5))
    for layer, result in zip(layers * 5, results, strict=True):
        check_result(layer, result)


def test_more_threads_than_columns(threads: None) -> None:
    torch.set_num_threads(7)
    x = torch.ones(2, 8)
    assert torch.equal(linear(x, pack_weight(torch.ones(1, 8), "fp32")), torch.full((2, 1), 8.0))
