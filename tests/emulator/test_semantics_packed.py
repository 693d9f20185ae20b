"""Packed values in VOP2's forms (DPP, SDWA, e64), and sums that are exactly zero."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.lanes import ALL, LANES, Wave

MIRROR = 0x140  # row_mirror
LANE = np.arange(LANES)
REVERSED = LANE // 16 * 16 + 15 - LANE % 16
SIGNS = np.uint32(0x80008000)


def halves(words: np.ndarray) -> np.ndarray:
    """[lanes, 2] f16 of packed words."""
    return np.ascontiguousarray(words.astype(np.uint32)).view(np.float16).reshape(-1, 2)


def packed(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values.astype(np.float16)).view(np.uint32).ravel()


def small(rng: np.random.Generator) -> np.ndarray:
    """Packed f16 whose products and sums of three are exact in f16 and f32: small integers."""
    return packed(rng.integers(-15, 16, (LANES, 2)))


def fmac(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return packed(halves(a).astype(np.float64) * halves(b) + halves(c))


def dot(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    products = (halves(a).astype(np.float64) * halves(b)).sum(1)
    return (products + c.view(np.float32)).astype(np.float32).view(np.uint32)


def accumulator(name: str, rng: np.random.Generator) -> np.ndarray:
    if name == "v_pk_fmac_f16":
        return small(rng)
    return rng.integers(-50, 50, LANES).astype(np.float32).view(np.uint32)


STATEMENTS = {"v_pk_fmac_f16": fmac, "v_dot2c_f32_f16": dot}


@pytest.fixture(params=STATEMENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def execute(name: str, rng: np.random.Generator, exec_mask: int = ALL, **fields) -> tuple:
    """(result, a, b, c) of an instruction on random sources."""
    a, b, c = small(rng), small(rng), accumulator(name, rng)
    wave = Wave(destination=c, exec=exec_mask)
    return wave.vector(name, a, b, ("v", 64, 1), **fields).u32, a, b, c


def test_dpp_masks_and_inactive_lanes_keep_the_destination(name: str) -> None:
    exec_mask = 0xF3C75A96C3D26B1E
    active = np.array([exec_mask >> i & 1 for i in range(LANES)], bool)
    got, a, b, c = execute(
        name, np.random.default_rng(2), exec_mask,
        dpp=1, dpp_ctrl=MIRROR, row_mask=0b1011, bank_mask=0b0111,
    )  # fmt: skip
    source = active[REVERSED]  # without bound_ctrl a lane whose source is inactive is not written
    written = active & source & (LANE // 16 != 2) & (LANE // 4 % 4 != 3)
    assert 0 < written.sum() < active.sum()
    assert np.array_equal(got, np.where(written, STATEMENTS[name](a[REVERSED], b, c), c))


@pytest.mark.parametrize("form", [{}, {"dpp": 1, "dpp_ctrl": 0xE4}])  # e64; DPP, in place
def test_neg_and_abs_act_on_both_halves(name: str, form: dict[str, int]) -> None:
    rng = np.random.default_rng(4)
    got, a, b, c = execute(name, rng, modifiers=("-", "|"), **form)
    assert np.array_equal(got, STATEMENTS[name](a ^ SIGNS, b & ~SIGNS, c))
    got, a, b, c = execute(name, rng, modifiers=("-|", ""), **form)
    assert np.array_equal(got, STATEMENTS[name](a | SIGNS, b, c))


@pytest.mark.parametrize(
    ("select", "shift", "bits"), [(5, 16, 16), (4, 0, 16), (1, 8, 8), (6, 0, 32)]
)
@pytest.mark.parametrize("source", [0, 1])
def test_sdwa_selects_sources_of_packed_values(
    source: int, select: int, shift: int, bits: int
) -> None:
    """Of each source by itself; what is selected is the packed value, zero-extended."""
    selects = {"src0_sel": 6, "src1_sel": 6, f"src{source}_sel": select}
    got, *sources, c = execute(
        "v_pk_fmac_f16", np.random.default_rng(5), sdwa=1, dst_sel=6, **selects
    )
    sources[source] = sources[source] >> np.uint32(shift) & np.uint32((1 << bits) - 1)
    assert np.array_equal(got, fmac(*sources, c))


@pytest.mark.parametrize("unused", [0, 1, 2])
def test_sdwa_writes_part_of_a_packed_result(unused: int) -> None:
    got, a, b, c = execute(
        "v_pk_fmac_f16", np.random.default_rng(6), sdwa=1, dst_sel=5, dst_unused=unused
    )
    low = fmac(a, b, c) & np.uint32(0xFFFF)  # dst_sel WORD_1: the result's low word goes there
    keep = {0: np.zeros_like(c), 1: np.zeros_like(c), 2: c & np.uint32(0xFFFF)}[unused]
    assert np.array_equal(got, low << np.uint32(16) | keep)


def test_bf16_dot_with_dpp_and_signs() -> None:
    rng = np.random.default_rng(7)
    floats = rng.integers(-15, 16, (2, LANES, 2)).astype(np.float32)
    a, b = ((f.view(np.uint32) >> 16).astype(np.uint32) for f in floats)
    a, b = (x[:, 0] | x[:, 1] << np.uint32(16) for x in (a, b))
    c = rng.integers(-9, 9, LANES).astype(np.float32)
    wave = Wave(destination=c.view(np.uint32))
    out = wave.vector(
        "v_dot2c_f32_bf16", a, b, ("v", 64, 1), dpp=1, dpp_ctrl=MIRROR, modifiers=("-", "|")
    )
    want = -(floats[0][REVERSED] * np.abs(floats[1])).sum(1) + c
    assert np.array_equal(out.f32, want)


# ---- an exact sum of 0 is -0 if MODE rounds down, unless both terms are +0 (IEEE 754, 6.3) ----
