"""Generated operands at the edges of bfloat16 and float32, and the comparison of results."""

from __future__ import annotations

import random

from tests.cpu.interpreter import semantics


def bfloat16(rng: random.Random) -> int:
    """Any bits, edges, numbers near one, and those whose products are near the least normal."""
    sign = rng.choice([0, 0x8000])
    edges = (0, 1, 0x7F, 0x80, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0, 0x3F80)
    near = rng.randrange(0x1C00, 0x2400), rng.randrange(0x3F00, 0x4080)
    return sign | rng.choice([rng.choice(edges), rng.randrange(1 << 15), *near, *near])


def float32(rng: random.Random) -> int:
    sign = rng.choice([0, 1 << 31])
    edges = (0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000)
    near = rng.randrange(0x1000000), rng.randrange(0x3F000000, 0x41000000)
    tie = rng.randrange(1 << 15) << 16 | 0x8000  # for the conversion to bfloat16
    return sign | rng.choice([rng.choice(edges), rng.randrange(1 << 31), tie, *near])


def bfloat16_lane(rng: random.Random) -> tuple[int, int, int]:
    """A float32 and two pairs of bfloat16."""
    total, a, b = float32(rng), *(bfloat16(rng) | bfloat16(rng) << 16 for _ in range(2))
    kind = rng.randrange(4)
    if kind == 0:  # the odd product cancels the destination
        total = semantics.fused(semantics.odd(a), semantics.odd(b), 0) ^ semantics.SIGN
    if kind == 1:  # just below the least normal: a flush before rounding would show
        exponent = rng.randrange(25, 80)
        a = exponent << 23
        b = 0x80000000 | (2 * 127 - 151 - exponent + rng.randrange(-1, 2)) << 23
        total = 0x00800000
    return total, a, b


def same(expected: int, found: int) -> bool:
    """Equal bits, or two quiet NaN, whose payloads the statement leaves open."""
    quiet = semantics.INFINITY | semantics.QUIET
    both = semantics.is_nan(expected) and found & quiet == quiet
    return expected == found or both
