"""Blocks of MXFP4 as other tools write them: each is read as it was written.

Tools choose different exponents for one block, so that a reader must not choose one itself.
findings/mxfp4_scale_rules.sh asks gguf, torchao and compressed-tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from hk_backend import ops, reference
from hk_backend.terms.weight_format import MX_BLOCK

SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The codes 0 to 7 of an element stand for these."""


class Exponents(NamedTuple):
    """A block with a given largest value gets these exponents, by rule.

    floor: gguf; torchao's FLOOR, which is the rule of the OCP specification. even: AMD Quark,
    compressed-tensors, torchao's EVEN. ceil, rceil: torchao's modes of these names.
    """

    floor: int
    even: int
    ceil: int
    rceil: int


LARGEST = {
    4.0: Exponents(0, 0, 0, 0),
    6.0: Exponents(0, 0, 1, 0),
    6.5: Exponents(0, 0, 1, 1),
    7.0: Exponents(0, 1, 1, 1),
    8.0: Exponents(1, 1, 1, 1),
}


def values(largest: float) -> list[float]:
    return [largest, -largest, 1.0, -2.0, 3.0, 0.0] + [0.5] * (MX_BLOCK - 6)


def block(largest: float, exponent: int) -> tuple[torch.Tensor, torch.Tensor, list[float]]:
    """Codes `[1, 16]` and scale `[1, 1]` of `values`, and the numbers that they stand for."""
    codes, written = [], []
    for value in values(largest):
        size, sign = abs(value) / 2.0**exponent, -1 if value < 0 else 1
        # ties go to the even code
        code = min(range(8), key=lambda each: (abs(SIZES[each] - size), each % 2))
        codes.append(code | (value < 0) << 3)
        written.append(sign * SIZES[code] * 2.0**exponent)
    packed = [low | high << 4 for low, high in zip(codes[::2], codes[1::2], strict=True)]
    scale = torch.tensor([[127 + exponent]], dtype=torch.uint8)
    return torch.tensor([packed], dtype=torch.uint8), scale, written


@pytest.mark.parametrize("rule", Exponents._fields)
@pytest.mark.parametrize("largest", LARGEST)
def test_a_block_is_read_as_it_was_written(largest: float, rule: str, isa: str) -> None:
    codes, scale, written = block(largest, getattr(LARGEST[largest], rule))
    packed = ops.pack_weight(codes, "mxfp4", scale)
    found = ops.linear(torch.eye(MX_BLOCK), packed).flatten()
    assert found.tolist() == written
    assert reference.dequantize(codes, "mxfp4", scale).flatten().tolist() == written


def test_seven_is_six_or_eight() -> None:
    """The control: the rules differ in what is written."""
    written = {rule: block(7.0, getattr(LARGEST[7.0], rule))[2][0] for rule in Exponents._fields}
    assert written == {"floor": 6.0, "even": 8.0, "ceil": 8.0, "rceil": 8.0}


@pytest.mark.parametrize("rule", ["floor", "even"])
@pytest.mark.parametrize("largest", LARGEST)
def test_the_rules_of_the_operator(largest: float, rule: str, isa: str) -> None:
    """`scale_rounding` names two of them."""
    codes, scale, _ = block(largest, getattr(LARGEST[largest], rule))
    found = ops.quantize_mx(torch.tensor([values(largest)]), "mxfp4", rule)
    assert torch.equal(found[0], codes)
    assert torch.equal(found[1], scale)
