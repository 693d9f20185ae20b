"""Instructions that take numbers apart or together: frexp, fract, division, mixed FMA, dot
products."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.emulator.lanes import LANES, VCC, Result, Wave
from tests.emulator.test_semantics_convert import ALL_16, run, same_floats
from tests.emulator.values import edges

TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
BITS = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}


def inputs(kind: str) -> np.ndarray:
    """All f16; edges and random values of the wider types. Whole rows of lanes."""
    if kind == "f16":
        return ALL_16.ravel().astype(np.uint16).view(np.float16)
    values = edges(kind, 1024, np.random.default_rng(sum(kind.encode())))
    return values.astype(BITS[kind]).view(TYPES[kind])


def unary(name: str, values: np.ndarray, result: str) -> np.ndarray:
    """The instruction on any number of values; `result`: a type of TYPES, or i16, i32."""
    width = {"i16": np.int16, "i32": np.int32, **TYPES}[result]
    if values.dtype.itemsize < 8:
        words = run(name, values.view(BITS[f"f{8 * values.dtype.itemsize}"]).astype(np.uint32))
        return words.astype(f"u{np.dtype(width).itemsize}").view(width)
    out = []
    for row in values.reshape(-1, LANES):
        wave = Wave().vector(name, row, dwords=2 if result == "f64" else 1)
        out.append(wave.u64 if result == "f64" else wave.u32)
    return np.concatenate(out).view(width)


def floats(wave: Result, kind: str) -> np.ndarray:
    """The lanes of a result."""
    return (wave.u64 if kind == "f64" else wave.u32).astype(BITS[kind]).view(TYPES[kind])


@pytest.mark.parametrize("kind", TYPES)
def test_frexp(kind: str) -> None:
    values = inputs(kind)
    number = "i16" if kind == "f16" else "i32"
    exponent = unary(f"v_frexp_exp_{number}_{kind}", values, number)
    significand = unary(f"v_frexp_mant_{kind}", values, kind)
    finite = np.isfinite(values)
    parts = [math.frexp(float(x)) for x in values[finite]]
    assert np.array_equal(exponent[finite], [e for _, e in parts])
    assert same_floats(significand[finite], np.array([m for m, _ in parts]).astype(TYPES[kind]))
    assert not exponent[~finite].any()
    assert same_floats(significand[~finite], values[~finite])


@pytest.mark.parametrize("kind", TYPES)
def test_fract_is_below_one(kind: str) -> None:
    values = inputs(kind)
    with np.errstate(invalid="ignore"):
        exact = values - np.floor(values)
    below = np.nextafter(TYPES[kind](1), TYPES[kind](0))
    expected = np.where(exact >= 1, below, exact).astype(TYPES[kind])
    assert same_floats(unary(f"v_fract_{kind}", values, kind), expected)


@pytest.mark.parametrize("kind", TYPES)
def test_rndne(kind: str) -> None:
    values = inputs(kind)
    assert same_floats(unary(f"v_rndne_{kind}", values, kind), np.rint(values))


def apart(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Numerators and denominators of any exponents, far apart, near the ends, denormal."""
    fraction = {"f32": 23, "f64": 52}[kind]
    top = 2 ** (8 * np.dtype(TYPES[kind]).itemsize - fraction - 1) - 1  # exponent field of infinity
    far = {"f32": 96, "f64": 768}[kind]
    denominator = rng.integers(0, top, LANES)
    numerator = rng.integers(0, top, LANES)
    near = denominator + rng.choice([-far, far], LANES) + rng.integers(-1, 2, LANES)
    numerator = np.where(rng.random(LANES) < 0.4, near.clip(0, top - 1), numerator)
    ends = rng.choice([0, 1, 23, 24, 25, 52, 53, 54, top - 3, top - 2, top - 1], (2, LANES))
    numerator = np.where(rng.random(LANES) < 0.2, ends[0], numerator)
    denominator = np.where(rng.random(LANES) < 0.2, ends[1], denominator)
    random = rng.integers(0, 1 << 63, (2, LANES), dtype=np.uint64) % np.uint64(1 << fraction)
    sign = rng.integers(0, 2, (2, LANES)).astype(np.uint64) * np.uint64((top + 1) << fraction)
    exponents = np.stack([numerator, denominator]).astype(np.uint64)
    a, b = (exponents << np.uint64(fraction) | random | sign).astype(BITS[kind])
    return a, b


class Division:
    """LLVM's expansion of fdiv: v_div_scale, Newton's steps, v_div_fmas and v_div_fixup."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.dwords = 2 if kind == "f64" else 1

    def run(self, name: str, *sources: np.ndarray, vcc: int = 0, **more: object) -> np.ndarray:
        wave = Wave(vcc=vcc).vector(name, *sources, dwords=self.dwords, **more)
        self.vcc = wave.pair(30)
        return wave.u64 if self.dwords == 2 else wave.u32

    def less(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:  # c - a b
        return self.run(f"v_fma_{self.kind}", a, b, c, modifiers=("-",))

    def __call__(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, int]:
        """The quotients, and the lanes that v_div_fmas scaled."""
        d = self.run(f"v_div_scale_{self.kind}", b, b, a, mask_destination=30)
        n = self.run(f"v_div_scale_{self.kind}", a, b, a, mask_destination=30)
        scaled = self.vcc
        one = np.ones(LANES, TYPES[self.kind]).view(BITS[self.kind])
        r = self.run(f"v_rcp_{self.kind}", d)
        r = self.run(f"v_fma_{self.kind}", self.less(d, r, one), r, r)
        if self.kind == "f64":
            r = self.run(f"v_fma_{self.kind}", self.less(d, r, one), r, r)
        q = self.run(f"v_mul_{self.kind}", n, r)
        if self.kind == "f32":
            q = self.run(f"v_fma_{self.kind}", self.less(d, q, n), r, q)
        q = self.run(f"v_div_fmas_{self.kind}", self.less(d, q, n), r, q, vcc=scaled, masks=(VCC,))
        return self.run(f"v_div_fixup_{self.kind}", q, b, a), scaled


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_division_as_compilers_write_it(kind: str) -> None:
    """Quotients are correctly rounded, also if operands are far apart, very large or denormal."""
    rng = np.random.default_rng(9)
    divide, scaled, plain = Division(kind), 0, 0
    for turn in range(40):
        if turn % 4 == 0:
            a, b = (edges(kind, LANES, rng).astype(BITS[kind]) for _ in range(2))
        else:
            a, b = apart(kind, rng)
        got, vcc = divide(a, b)
        with np.errstate(all="ignore"):
            expected = a.view(TYPES[kind]) / b.view(TYPES[kind])
        assert same_floats(got.astype(BITS[kind]).view(TYPES[kind]), expected)
        finite = np.isfinite(expected) & (expected != 0)
        scaled += sum(bool(f) and vcc >> lane & 1 for lane, f in enumerate(finite))
        plain += sum(bool(f) and not vcc >> lane & 1 for lane, f in enumerate(finite))
    assert scaled > 300
    assert plain > 300


@pytest.mark.parametrize(
    "name", ["v_div_fixup_f16", "v_div_fixup_legacy_f16", "v_div_fixup_f32", "v_div_fixup_f64"]
)
def test_division_fixup_of_special_values(name: str) -> None:
    """S1 the denominator, S2 the numerator; ordinary quotients: |S0| with their sign."""
    kind = name[-3:]
    special = np.array([0.0, -0.0, 1.0, -3.0, math.inf, -math.inf, math.nan, 5.0], TYPES[kind])
    b, a = np.repeat(special, 8), np.tile(special, 8)
    q = np.full(LANES, -7.0, TYPES[kind])
    got = Wave().vector(name, q, b, a, dwords=2 if kind == "f64" else 1)
    with np.errstate(all="ignore"):
        quotient = a / b
    ordinary = np.isfinite(quotient) & (quotient != 0)
    expected = np.where(ordinary, np.copysign(TYPES[kind](7), quotient), quotient)
    assert same_floats(floats(got, kind), expected)


MIXED = [("v_fma_mix_f32", 0), ("v_fma_mixlo_f16", 0), ("v_fma_mixhi_f16", 16)]


@pytest.mark.parametrize(("name", "shift"), MIXED)
@pytest.mark.parametrize("op_sel_hi", range(8))
def test_mixed_fma(name: str, shift: int, op_sel_hi: int) -> None:
    """A source is f32, or the half that op_sel says where op_sel_hi is set; neg_hi is the absolute
    value."""
    rng = np.random.default_rng(op_sel_hi)
    op_sel, neg, absolute = 0b101, 0b011, 0b110
    values = rng.integers(-30, 31, (3, LANES))
    sources, terms = [], []
    for i, row in enumerate(values):
        if op_sel_hi >> i & 1:
            half = row.astype(np.float16).view(np.uint16).astype(np.uint32)
            junk = rng.integers(0, 1 << 16, LANES, dtype=np.uint32)
            high = op_sel >> i & 1
            word = half << np.uint32(16) | junk if high else half | junk << np.uint32(16)
        else:
            word = row.astype(np.float32).view(np.uint32)
        sources.append(word)
        term = np.abs(row) if absolute >> i & 1 else row
        terms.append(-term if neg >> i & 1 else term)
    exact = terms[0] * terms[1] + terms[2]
    old = np.full(LANES, 0x12345678, np.uint32)
    out = Wave(destination=old).vector(
        name, *sources, op_sel=op_sel & op_sel_hi, op_sel_hi=op_sel_hi, neg_lo=neg, neg_hi=absolute
    )
    if name.endswith("f32"):
        assert np.array_equal(out.f32, exact.astype(np.float32))
        return
    half = exact.astype(np.float16).view(np.uint16).astype(np.uint32) << np.uint32(shift)
    assert np.array_equal(out.u32, half | old & np.uint32(0xFFFF0000 >> shift))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_float_dot_products(kind: str) -> None:
    """op_sel chooses halves, neg_lo and neg_hi signs; products of small integers are exact."""
    rng = np.random.default_rng(4)
    values = rng.integers(-15, 16, (2, LANES, 2))
    if kind == "bf16":
        halves = values.astype(np.float32).view(np.uint32) >> 16
    else:
        halves = values.astype(np.float16).view(np.uint16)
    words = [(h[:, 0] | h[:, 1].astype(np.uint32) << 16).astype(np.uint32) for h in halves]
    c = rng.integers(-9, 10, LANES).astype(np.float32)
    plain = Wave(destination=c).vector(f"v_dot2c_f32_{kind}", *words, ("v", 64, 1))
    assert np.array_equal(plain.f32, (values[0] * values[1]).sum(1) + c)
    fields = {"op_sel": 0b01, "op_sel_hi": 0b10, "neg_lo": 0b10, "neg_hi": 0b01}
    out = Wave().vector(f"v_dot2_f32_{kind}", *words, c, **fields)
    # the first product: a's high half and b's low one, negated; the second: -a's low, b's high
    expected = values[0, :, 1] * -values[1, :, 0] - values[0, :, 0] * values[1, :, 1] + c
    assert np.array_equal(out.f32, expected.astype(np.float32))


@pytest.mark.parametrize("name", ["v_bitop3_b32", "v_bitop3_b16"])
def test_bitop3_is_a_truth_table(name: str) -> None:
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(0, 1 << 32, LANES, dtype=np.uint32) for _ in range(3))
    mask = np.uint32(0xFFFFFFFF if name.endswith("b32") else 0xFFFF)
    for table in range(256):
        expected = np.zeros(LANES, np.uint32)
        for row in range(8):
            terms = [x if row >> n & 1 else ~x for x, n in ((a, 2), (b, 1), (c, 0))]
            if table >> row & 1:
                expected |= terms[0] & terms[1] & terms[2]
        got = Wave().vector(name, a, b, c, simm=table).u32
        assert np.array_equal(got & mask, expected & mask), table


@pytest.mark.parametrize("name", ["v_fmamk_f32", "v_fmaak_f32", "v_madmk_f16", "v_madak_f16"])
def test_fma_with_a_literal(name: str) -> None:
    """Small integers and a half: nothing is rounded."""
    kind = name[-3:]
    a = np.arange(LANES, dtype=TYPES[kind])
    b, half = a + TYPES[kind](3), TYPES[kind](0.5)
    literal = ("c", int(half.view(BITS[kind])))
    if name[4:6] == "mk":
        got, expected = Wave().vector(name, a, literal, b), a * half + b
    else:
        got, expected = Wave().vector(name, a, b, literal), a * b + half
    assert np.array_equal(floats(got, kind), expected)


@pytest.mark.parametrize(("kind", "least"), [("f32", 150), ("f64", 1075)])
def test_fixup_of_quotients_below_all_numbers(kind: str, least: int) -> None:
    """Quotients below 1 / 2^least become 0, whatever quotient was computed."""
    computed, numerator = (np.full(LANES, value, TYPES[kind]) for value in (7.0, 2.0**-100))
    for apart, expected in ((least, -7.0), (least + 1, -0.0)):
        denominator = np.full(LANES, -(2.0 ** (apart - 100)), TYPES[kind])
        dwords = 2 if kind == "f64" else 1
        out = Wave().vector(f"v_div_fixup_{kind}", computed, denominator, numerator, dwords=dwords)
        got = floats(out, kind)
        np.testing.assert_array_equal(got, np.full(LANES, expected, TYPES[kind]))
        assert np.signbit(got).all()
