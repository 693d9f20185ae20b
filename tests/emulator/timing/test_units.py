"""What single instructions take of their units."""

from __future__ import annotations

import pytest

from tests.emulator.assembly import needs_llvm
from tests.emulator.timing.programs import clocks, replay, trace

pytestmark = needs_llvm

START = "".join(f"v_mov_b32 v{i}, 0\n" for i in range(2, 40))
MATRIX = "v_mfma_f32_16x16x32_bf16 v[8:11], v[16:19], v[20:23], v[8:11]\n"


def added(more: str, base: str = START, **options: object) -> int:
    """Clocks that 20 times `more` take after as many."""
    one, two = (clocks(base + more * n, **options) for n in (20, 40))  # type: ignore[arg-type]
    return two - one


@pytest.mark.parametrize(
    ("instruction", "each"),
    [
        ("v_fma_f32 v2, v3, v4, v2", 4),
        ("v_pk_fma_f32 v[2:3], v[4:5], v[6:7], v[2:3]", 4),
        ("v_exp_f32 v2, v3", 8),
        ("v_mul_lo_u32 v2, v3, v4", 8),
        ("v_mul_hi_u32 v2, v3, v4", 8),
        ("v_fma_f64 v[2:3], v[4:5], v[6:7], v[2:3]", 8),
        ("v_rcp_f64 v[2:3], v[4:5]", 16),
        ("v_swap_b32 v2, v3", 8),
        ("s_add_u32 s8, s8, s9", 4),
        ("s_nop 0", 4),
        ("s_nop 7", 32),
        ("s_sleep 1", 64),
        ("s_sleep 3", 192),
    ],
)
def test_clocks_of_an_instruction(instruction: str, each: int) -> None:
    assert added(f"{instruction}\n") == 20 * each


@pytest.mark.parametrize(("instruction", "each"), [("s_add_u32 s8, s8, s9", 8), ("s_nop 0", 4)])
def test_a_simd_issues_one_instruction_of_a_unit_in_a_slot(instruction: str, each: int) -> None:
    """Two waves on each SIMD take turns at the scalar unit; s_nop needs none."""
    assert added(f"{instruction}\n", base="", waves=8) == 20 * each


def test_a_jump_takes_longer_than_its_slot_only_if_it_is_taken() -> None:
    base = START + "s_cmp_lg_u32 s8, s8\n"
    for jump, each in (("s_branch 1f", 28), ("s_cbranch_scc0 1f", 28), ("s_cbranch_scc1 1f", 4)):
        taken = added(f"{jump}\n 1:\n", base, changes={"branch_taken": 28})
        assert taken == 20 * each, jump


@pytest.mark.parametrize(
    ("instruction", "stride", "each"),
    [
        ("ds_read_u8 v2, v3", 4, 256 / 128),  # as a whole bank's
        ("ds_read_b32 v2, v3", 4, 256 / 128),
        ("ds_read2_b32 v[4:5], v3 offset1:1", 4, 2 * 256 / 128),
        ("ds_read_b64 v[4:5], v3", 8, 512 / 128),
        ("ds_read_b96 v[4:6], v3", 16, 768 / 256),
        ("ds_read_b128 v[4:7], v3", 16, 1024 / 256),
        ("ds_write_b32 v3, v4", 4, 256 / 128),
        ("ds_write_b64 v3, v[4:5]", 8, 512 / 128),
        ("ds_write_b128 v3, v[4:7]", 16, 1024 / 128),
    ],
)
def test_clocks_of_the_lds(instruction: str, stride: int, each: float) -> None:
    """The bytes of 64 lanes, by the rate of their width, without conflicts."""
    body = f"{START} v_mul_u32_u24 v3, {stride}, v0\n" + f"{instruction}\n" * 10
    assert replay(trace(body, lds=65536)).busy["lds"] == 10 * each


@pytest.mark.parametrize(
    ("instruction", "each"),
    [
        ("v_mfma_f32_16x16x32_bf16 v[8:11], v[16:19], v[20:23], v[8:11]", 16),  # one accumulator
        ("v_mfma_f32_16x16x32_bf16 a[0:3], v[16:19], v[20:23], a[0:3]", 16),
        ("v_mfma_f32_16x16x32_bf16 v[8:11], v[16:19], v[20:23], 0", 16),  # overwritten in order
        ("v_mfma_f32_16x16x32_bf16 v[8:11], v[8:11], v[20:23], 0", 32),  # an operand
    ],
)
def test_what_a_matrix_instruction_waits_for(instruction: str, each: int) -> None:
    accumulators = "".join(f"v_accvgpr_write_b32 a{i}, 0\n" for i in range(4))
    assert added(f"{instruction}\n", START + accumulators) == 20 * each


@pytest.mark.parametrize("vector", ["v_mov_b32 v9, 0", "v_mov_b32 v2, v9"], ids=["write", "read"])
def test_a_vector_instruction_waits_for_a_result_that_it_writes_or_reads(vector: str) -> None:
    assert added(f"{MATRIX}{vector}\n") == 20 * (32 + 4)
