"""Packed values in VOP2's forms (DPP, SDWA, e64), and sums that are exactly zero."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.lanes import ALL, LANES, MODE, Wave
from tests.emulator.test_semantics_convert import ALL_16, run
from tests.emulator.values import edges

ROUND_DOWN = MODE & ~0xC | 2 << 2  # of f16 and f64
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


def test_dpp_permutes_the_first_source(name: str) -> None:
    got, a, b, c = execute(name, np.random.default_rng(1), dpp=1, dpp_ctrl=MIRROR)
    assert np.array_equal(got, STATEMENTS[name](a[REVERSED], b, c))


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


def test_sdwa_has_no_signs_of_packed_values() -> None:
    """LLVM has no text for them, and AMD's simulator ignores them."""
    whole = {"sdwa": 1, "src0_sel": 6, "src1_sel": 6, "dst_sel": 6}
    rng = np.random.default_rng(9)
    got, a, b, c = execute("v_pk_fmac_f16", rng, modifiers=("-", "|"), **whole)
    assert np.array_equal(got, fmac(a, b, c))


@pytest.mark.parametrize("name", ["v_pk_add_f16", "v_pk_mul_f16", "v_pk_fma_f16", "v_pk_fmac_f16"])
def test_packed_denormals_follow_mode(name: str) -> None:
    """MODE[6] keeps those of sources, MODE[7] those of results; all that is kept is exact here."""
    codes = [0x0000, 0x8000, 0x0001, 0x8003, 0x03FF, 0x0400, 0x3C00]
    units = np.random.default_rng(10).choice(codes, (3, LANES, 2))
    a, b, c = units.astype(np.uint16).view(np.float16).astype(np.float64)
    b = np.where(b == 0, 0.0, np.copysign(1.0, b))  # a product by 1 loses no bit

    def flushed(x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x) < 2.0**-14, np.copysign(0, x), x)

    for mode, of_source, of_result in (
        (MODE, np.asarray, np.asarray),
        (MODE & ~0x40, flushed, np.asarray),
        (MODE & ~0x80, np.asarray, flushed),
    ):
        x, y, z = (of_source(each) for each in (a, b, c))
        exact = {"v_pk_add_f16": x + z, "v_pk_mul_f16": x * y}.get(name, x * y + z)
        sources = {"v_pk_add_f16": (a, c), "v_pk_mul_f16": (a, b)}.get(name, (a, b, c))
        got = run(name, *map(packed, sources), wave=Wave(mode=mode), op_sel_hi=7)
        assert np.array_equal(got, packed(of_result(exact)))


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

SUMS = {
    "v_add_f16": lambda x: (x, x ^ 0x8000),
    "v_sub_f16": lambda x: (x, x),
    "v_subrev_f16": lambda x: (x, x),
    "v_fma_f16": lambda x: (x, np.full_like(x, 0x3C00), x ^ 0x8000),
    "v_mad_f16": lambda x: (x, np.full_like(x, 0x3C00), x ^ 0x8000),
    "v_fract_f16": lambda x: (np.floor(halves(x)[:, 0]).view(np.uint16).astype(np.uint32),),
}


@pytest.mark.parametrize("name", SUMS)
def test_f16_zero_sums_rounded_down_are_negative(name: str) -> None:
    x = ALL_16.ravel()[::5].astype(np.uint32)
    x = x[(x & 0x7FFF) < 0x7C00]
    for mode, zero in ((MODE, 0), (ROUND_DOWN, 0x8000)):
        got = run(name, *SUMS[name](x), wave=Wave(mode=mode))
        assert set(got.tolist()) == {zero}


@pytest.mark.parametrize("name", ["v_pk_add_f16", "v_pk_fma_f16", "v_pk_fmac_f16"])
def test_packed_zero_sums_rounded_down_are_negative(name: str) -> None:
    x = edges("f16", LANES, np.random.default_rng(8)).astype(np.uint32)
    x = np.where((x & 0x7FFF) < 0x7C00, x, 0x1234).astype(np.uint32)
    x |= np.roll(x, 1) << np.uint32(16)
    one = np.full(LANES, 0x3C003C00, np.uint32)
    for mode, zero in ((MODE, 0), (ROUND_DOWN, 0x80008000)):
        sources = (x, x ^ SIGNS) if name == "v_pk_add_f16" else (x, one, x ^ SIGNS)
        got = run(name, *sources, wave=Wave(mode=mode), op_sel_hi=7)
        assert set(got.tolist()) == {zero}


@pytest.mark.parametrize(
    ("name", "sources", "down"),
    [
        ("v_add_f16", (0, 0), 0),
        ("v_add_f16", (0x8000, 0x8000), 0x8000),
        ("v_add_f16", (0, 0x8000), 0x8000),
        # no sums: a zero keeps its sign
        ("v_mul_f16", (0, 0x3C00), 0),
        ("v_floor_f16", (0x3800,), 0),
        ("v_log_f16", (0x3C00,), 0),
        ("v_trunc_f16", (0x3800,), 0),
    ],
)
def test_f16_zeros_rounded_down(name: str, sources: tuple[int, ...], down: int) -> None:
    words = [np.full(LANES, bits, np.uint32) for bits in sources]
    assert set(run(name, *words, wave=Wave(mode=ROUND_DOWN)).tolist()) == {down}


@pytest.mark.parametrize("op_sel", range(4))
def test_move_of_two(op_sel: int) -> None:
    """The low dword of the result from the first source, the high one from the second."""
    rng = np.random.default_rng(op_sel)
    a, b = rng.integers(0, 1 << 32, (2, LANES, 2), dtype=np.uint32)
    pairs = [x.view(np.uint64).ravel() for x in (a, b)]
    old = edges("u64", LANES, rng)
    some = 0x0123456789ABCDEF
    wave = Wave(exec=some, destination=old)
    out = wave.vector("v_pk_mov_b32", *pairs, dwords=2, op_sel=op_sel)
    wanted = np.stack([a[:, op_sel & 1], b[:, op_sel >> 1]], 1).view(np.uint64).ravel()
    active = np.array([some >> lane & 1 for lane in range(LANES)], bool)
    np.testing.assert_array_equal(out.u64, np.where(active, wanted, old))
