"""Transcendental and approximate functions, against mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from tests.emulator.lanes import LANES, Wave
from tests.emulator.test_semantics_convert import ALL_16, run
from tests.emulator.values import edges


def turns(function: Callable[[mpmath.mpf], mpmath.mpf]) -> Callable[[float], mpmath.mpf]:
    """A function of an angle in turns. Its zeros are +0; AT_ZERO has the result for -0."""
    return lambda x: function(2 * mpmath.mpf(x)) or mpmath.mpf(0)


# Functions of finite values but zero, to a number or infinity; None: NaN.
FUNCTIONS: dict[str, Callable[[float], mpmath.mpf | None]] = {
    "exp": lambda x: mpmath.power(2, x),
    "log": lambda x: mpmath.log(x, 2) if x > 0 else None,
    "rcp": lambda x: 1 / mpmath.mpf(x),
    "rsq": lambda x: 1 / mpmath.sqrt(x) if x > 0 else None,
    "sqrt": lambda x: mpmath.sqrt(x) if x > 0 else None,
    "sin": turns(mpmath.sinpi),
    "cos": turns(mpmath.cospi),
}
AT_ZERO = {"exp": 1.0, "log": -math.inf, "cos": 1.0}  # sin, sqrt: the zero; rcp, rsq: its infinity
AT_INFINITY = {  # the values at +inf and -inf
    "exp": (math.inf, 0.0), "log": (math.inf, None), "rcp": (0.0, -0.0), "rsq": (0.0, None),
    "sqrt": (math.inf, None), "sin": (None, None), "cos": (None, None),
}  # fmt: skip


def exact(function: str, x: float) -> float | None:
    """Rounded to float64 from 100 bits; None: NaN."""
    if math.isnan(x):
        return None
    if math.isinf(x):
        return AT_INFINITY[function][x < 0]
    if x == 0:
        pole = math.copysign(math.inf, x) if function in ("rcp", "rsq") else x
        return AT_ZERO.get(function, pole)
    with mpmath.workprec(100):
        result = FUNCTIONS[function](x)
        # numbers beyond float64's range are beyond that of every format here
        return (
            None if result is None else float(mpmath.ldexp(1, 1000) if result > 1e308 else result)
        )


def expected(function: str, values: np.ndarray, dtype: type) -> np.ndarray:
    results = [exact(function, float(x)) for x in values]
    with np.errstate(over="ignore"):
        return np.array([math.nan if r is None else r for r in results]).astype(dtype)


def check_f16(function: str, bits: np.ndarray) -> None:
    """Correctly rounded, denormals and the sign of zero included."""
    want = expected(function, bits.astype(np.uint16).view(np.float16), np.float16)
    got = run(f"v_{function}_f16", bits.astype(np.uint32)).astype(np.uint16)
    nan = np.isnan(want)
    assert np.array_equal(np.isnan(got.view(np.float16)), nan)
    wrong = np.flatnonzero(~nan & (got != want.view(np.uint16)))
    assert not len(wrong), [
        (hex(bits[i]), hex(got[i]), hex(want.view(np.uint16)[i])) for i in wrong[:5]
    ]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_f16_functions(function: str) -> None:
    rng = np.random.default_rng(sum(function.encode()))
    check_f16(function, np.concatenate([edges("f16", 512, rng), rng.integers(0, 1 << 16, 3584)]))


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_f16_functions_of_every_value(function: str) -> None:
    check_f16(function, ALL_16.ravel())


def flushed(values: np.ndarray) -> np.ndarray:
    return np.where(
        np.abs(values) < np.float32(2.0**-126), np.copysign(np.float32(0), values), values
    )


@pytest.mark.parametrize("name", [*FUNCTIONS, "rcp_iflag"])
def test_f32_functions_within_an_ulp(name: str) -> None:
    """The guide allows 1 ulp. All functions but sin and cos flush denormals."""
    function = name.removesuffix("_iflag")  # it differs in the exceptions that it raises
    rng = np.random.default_rng(sum(function.encode()))
    bits = np.concatenate([edges("f32", 1024, rng), rng.integers(0, 1 << 32, 1024)]).astype(
        np.uint32
    )
    keeps = function in ("sin", "cos")
    values = bits.view(np.float32)
    want = expected(function, values if keeps else flushed(values), np.float32)
    want = want if keeps else flushed(want)
    got = run(f"v_{name}_f32", bits)
    nan = np.isnan(want)
    assert np.array_equal(np.isnan(got.view(np.float32)), nan)
    ulps = np.abs(got.astype(np.int64) - want.view(np.uint32))[~nan]
    assert ulps.max() <= 1, [hex(b) for b in bits[~nan][ulps > 1][:5]]
    assert np.array_equal(np.signbit(got.view(np.float32)[~nan]), np.signbit(want[~nan]))


@pytest.mark.parametrize("name", ["v_rcp_f64", "v_rsq_f64", "v_sqrt_f64"])
def test_f64_functions(name: str) -> None:
    """The guide allows 2^29 ulp: the result starts Newton's method."""
    values = np.abs(edges("f64", 256, np.random.default_rng(3)).view(np.float64))
    values = values[np.isfinite(values) & (values > 0)][:LANES]
    values = np.resize(values, LANES)
    got = Wave().vector(name, values, dwords=2).u64.view(np.float64)
    with np.errstate(all="ignore"):
        want = {"rcp": 1 / values, "rsq": 1 / np.sqrt(values), "sqrt": np.sqrt(values)}[name[2:-4]]
        close = np.abs(got - want) <= np.abs(want) * 2.0 ** (29 - 52)
    assert (close | (got == want)).all()
