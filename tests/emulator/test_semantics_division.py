"""Where v_div_scale, v_div_fmas and v_div_fixup begin to treat numbers as extreme.

The rules are those that AMD's simulator (rocjitsu) has of gfx1100 and gfx1201. They are stated in
exponent fields, of which the guides' pseudo-code gets some wrong.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.lanes import ALL, LANES, VCC, Wave

TYPES = {"f32": (np.float32, np.uint32, 23, 64), "f64": (np.float64, np.uint64, 52, 128)}

# Fields of numerator and denominator; the powers of 2 that they are scaled by, in units of the
# type's; whether v_div_fmas must scale the quotient back.
SCALED = {
    "f32": [
        (127, 127, 0, 0, False),
        (222, 127, 0, 0, False), (223, 127, 0, 1, True),  # the quotient near the largest
        (50, 0, 1, 1, False), (95, 0, 1, 1, False), (96, 0, 0, 1, True),  # a denormal denominator
        (200, 252, 0, 0, False), (200, 253, -1, -1, False),  # whose reciprocal would be denormal
        (158, 253, -1, -1, False), (157, 253, 0, -1, True),
        (101, 196, 0, 0, False), (100, 196, 1, 0, True),  # the quotient near the smallest
        (25, 100, 0, 0, False), (24, 100, 1, 1, False),  # a tiny numerator
    ],
    "f64": [
        (1023, 1023, 0, 0, False),
        (1790, 1023, 0, 0, False), (1791, 1023, 0, 1, True),
        (60, 0, 1, 1, False), (767, 0, 1, 1, False), (768, 0, 0, 1, True),
        (2000, 2044, 0, 0, False), (2000, 2045, -1, -1, False),
        (1278, 2045, -1, -1, False), (1277, 2045, 0, -1, True),
        (1001, 1768, 0, 0, False), (1000, 1768, 1, 0, True),
        (54, 100, 0, 0, False), (53, 100, 1, 1, False),
    ],
}  # fmt: skip


def number(kind: str, field: int) -> np.ndarray:
    """1.5 times the power of 2 of an exponent field; field 0: half the smallest normal number."""
    dtype, bits, fraction, _ = TYPES[kind]
    return np.full(LANES, field << fraction | 1 << (fraction - 1), bits).view(dtype)


def run(name: str, *sources: np.ndarray, **more: object) -> tuple[np.ndarray, int]:
    """(results, the lanes of the second destination)."""
    kind = name[-3:]
    dtype, bits, _, _ = TYPES[kind]
    words = [source.view(bits) for source in sources]
    out = Wave(vcc=ALL).vector(name, *words, dwords=2 if kind == "f64" else 1, **more)
    result = out.u64 if kind == "f64" else out.u32
    return result.astype(bits).view(dtype), out.pair(30)


@pytest.mark.parametrize(
    ("kind", "row"), [(kind, row) for kind, rows in SCALED.items() for row in rows], ids=str
)
def test_scale(kind: str, row: tuple[int, int, int, int, bool]) -> None:
    n, d, of_numerator, of_denominator, back = row
    unit = TYPES[kind][3]
    numerator, denominator = number(kind, n), number(kind, d)
    for source, power in ((numerator, of_numerator), (denominator, of_denominator)):
        got, flag = run(f"v_div_scale_{kind}", source, denominator, numerator, mask_destination=30)
        np.testing.assert_array_equal(got, np.ldexp(source, power * unit))
        assert flag == (ALL if back else 0)


@pytest.mark.parametrize("kind", TYPES)
def test_fmas_scales_away_from_one(kind: str) -> None:
    """By the exponent of its addend, which is the quotient: up from 2 on, else down."""
    dtype, _, _, unit = TYPES[kind]
    zero = np.zeros(LANES, dtype)
    for quotient, power in ((1.75, -unit), (2.0, unit), (-1.75, -unit), (-2.0, unit)):
        addend = np.full(LANES, quotient, dtype)
        got, _ = run(f"v_div_fmas_{kind}", zero, zero, addend, masks=(VCC,))
        np.testing.assert_array_equal(got, np.ldexp(addend, power))


@pytest.mark.parametrize("kind", TYPES)
def test_fmas_rounds_once(kind: str) -> None:
    """A hair above and below halfway between two results that are denormal after the scaling."""
    dtype, _, fraction, unit = TYPES[kind]
    least = {"f32": -149, "f64": -1074}[kind]
    halfway = np.full(LANES, np.ldexp(1.5, least + unit), dtype)
    hair = np.full(LANES, np.ldexp(1.0, least + unit - 2 * fraction), dtype)
    one = np.ones(LANES, dtype)
    for sign, units in ((1, 2), (-1, 1), (0, 2)):
        got, _ = run(f"v_div_fmas_{kind}", dtype(sign) * hair, one, halfway, masks=(VCC,))
        np.testing.assert_array_equal(got, np.full(LANES, np.ldexp(float(units), least), dtype))


@pytest.mark.parametrize("kind", TYPES)
def test_fixup_of_quotients_below_all_numbers(kind: str) -> None:
    """From 1 / 2^(bias + fraction + 1) on the result is 0, whatever quotient was computed."""
    dtype = TYPES[kind][0]
    least = {"f32": 150, "f64": 1075}[kind]
    computed = np.full(LANES, 7.0, dtype)
    for apart, expected in ((least, -7.0), (least + 1, -0.0)):
        numerator, denominator = number(kind, 20), -number(kind, 20 + apart)
        got, _ = run(f"v_div_fixup_{kind}", computed, denominator, numerator)
        np.testing.assert_array_equal(got, np.full(LANES, expected, dtype))
        assert np.signbit(got).all()
