"""The ways in which a linear call is cut: chunks and blocks of rows, blocks of columns and of K,
register tiles, threads.

Sums of small whole numbers are exact in float32 in any order, so every cut must give the same bits.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from hk_backend.ops import linear, pack_weight
from tests.ops.linear_cases import KINDS, Case, make
from tests.ops.linear_oracle import check_result


def whole_numbers(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-4, 5, shape, generator=generator).float()


def check_exact(m: int, n: int, k: int) -> None:
    x, weight, bias = whole_numbers(m, k), whole_numbers(n, k), whole_numbers(n)
    expected = x @ weight.T + bias
    assert expected.abs().max() < 2**24, "sums that float32 does not hold exactly"
    found = linear(x.bfloat16(), pack_weight(weight.bfloat16(), "bf16"), bias, torch.float32)
    assert torch.equal(found, expected)


def test_every_number_of_rows(isa: str, threads: None) -> None:
    """Every split into register tiles, and blocks of rows for more threads than columns."""
    for num_threads, rows in ((1, range(1, 62)), (7, (*range(1, 62, 7), 127, 128, 129))):
        torch.set_num_threads(num_threads)
        for m in rows:
            check_exact(m, 40, 72)


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("rows", [191, 192, 193, 255, 256, 257, 385, 769])
def test_chunks_and_blocks_of_rows(rows: int, num_threads: int, threads: None) -> None:
    """K = 2048: a chunk is the fewest rows that there are in one."""
    torch.set_num_threads(num_threads)
    check_exact(rows, 33, 2048)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 127, 128, 129, 255, 256, 257, 513])
def test_blocks_of_columns(n: int, isa: str, threads: None) -> None:
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        check_exact(30, n, 40)


@pytest.mark.parametrize("k", [8, 24, 32, 40, 248, 256, 264, 288, 504, 512, 520, 1032])
def test_blocks_of_k(k: int, isa: str) -> None:
    for m in (1, 5, 17, 40):
        check_exact(m, 50, k)


@pytest.mark.parametrize(("format", "activations", "scales"), KINDS)
def test_same_bits_for_any_number_of_threads(
    format: str, activations: str, scales: str, threads: None
) -> None:
    for m in (4, 150):
        layer = make(Case(format, activations, scales, m=m, n=136, k=544))
        weight = layer.pack()
        results = []
        for count in (1, 3):
            torch.set_num_threads(count)
            assert torch.equal(layer.pack().data, weight.data)
            results.append(linear(layer.x, weight))
        for result in results[1:]:
            assert torch.equal(result, results[0])


def test_calls_from_several_python_threads_at_once(isa: str) -> None:
    """Each call of an engine's several workers has its own scratch memory."""
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
