"""Wait states of GFX9, against LLVM's hazard recognizer, for chosen pairs and for every matrix
instruction with every use of its result."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hk_backend import _emulator
from tests.emulator.assembly import vgprs
from tests.emulator.hazard_pairs import Pair, compare

# LLVM takes op_sel_hi of packed instructions (v_dot2_f32_f16, v_pk_*) for a choice of the result's
# half and adds one wait state after each: no pair that would need none or one begins with those.
pytestmark = pytest.mark.source_proof(
    "csrc/emulator/checks",
    "csrc/emulator/isa",
    "csrc/emulator/machine",
    "tests/emulator/wait_states.s",
    "tests/emulator/wait_states_gfx950.s",
)
LISTINGS = {"gfx942": ["wait_states.s"], "gfx950": ["wait_states.s", "wait_states_gfx950.s"]}


def pairs(listing: str) -> list[tuple[str, str]]:
    """Each instruction that begins a line with each of those indented below it."""
    found, first = [], ""
    for line in listing.split("\n"):
        if line.startswith(" "):
            found.append((first, line.strip()))
        elif not line.startswith("#"):
            first = line
    return found


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_vector_and_scalar_instructions(arch: str) -> None:
    texts = [Path(__file__).with_name(name).read_text() for name in LISTINGS[arch]]
    needed = compare(pairs("".join(texts)), arch)
    assert set(needed) == {0, 1, 2, 3, 4, 5}


# --- matrix instructions --------------------------------------------------------------------------


def sources_of(name: str) -> tuple[int, int]:
    """Registers of A and of B, and of C and of D, of one lane. (Sparse A has half of them.)"""
    shape = re.search(r"(\d+)x(\d+)x(\d+)", name)
    assert shape
    m, n, k = map(int, shape.groups())
    blocks = int(found[1]) if (found := re.search(r"_(\d+)b_", name)) else 1
    wide = 2 if name.endswith("f64") else 1
    width = {"f64": 64, "f32": 32, "i8": 8, "fp8": 8, "bf8": 8}
    element = width.get(name.rpartition("_")[2], 16)
    inputs = max(1, m * k * blocks * element // (64 * 32))
    return inputs, m * n * blocks * wide // 64


def matrix(name: str, d: int, a: int = 200, c: int | None = None) -> str:
    """A matrix instruction with D at v[d:], A at v[a:], B at v[208:], C constant or at v[c:]."""
    inputs, outputs = sources_of(name)
    accumulator = "0" if c is None else vgprs(c, outputs)
    d_text, a_text, b_text = vgprs(d, outputs), vgprs(a, inputs), vgprs(208, inputs)
    return f"{name} {d_text}, {a_text}, {b_text}, {accumulator}"


def matrix_names(arch: str) -> list[str]:
    executed = {m for _, _, m, executed in _emulator.opcodes(arch) if executed}
    return sorted(n for n in executed if n.startswith("v_mfma_") and "f8f6f4" not in n)


# One of each kind and length
CONSUMERS = {
    "gfx942": ["v_mfma_f32_16x16x16_f16", "v_mfma_f32_32x32x8_bf16", "v_mfma_f32_4x4x4_16b_f16",
               "v_mfma_f32_16x16x4_f32", "v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"],
    "gfx950": ["v_mfma_f32_16x16x32_f16", "v_mfma_f32_32x32x16_bf16", "v_mfma_f32_4x4x4_16b_f16",
               "v_mfma_f32_16x16x4_f32", "v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"],
}  # fmt: skip

# Uses of v16 and v17, parts of a matrix result
USES = [
    "v_add_f32 v100, v16, v1",
    "v_mov_b32 v16, v1",
    "v_exp_f32 v100, v16",
    "v_exp_f32 v17, v1",
    "v_pk_fma_f32 v[100:101], v[16:17], v[2:3], v[2:3]",
    "v_fma_f64 v[100:101], v[16:17], v[2:3], v[2:3]",
    "v_fma_f64 v[16:17], v[2:3], v[2:3], v[2:3]",
    "v_dot2_f32_f16 v100, v16, v1, v1",
    "v_dot2c_f32_f16 v16, v1, v1",
    "v_cvt_pk_fp8_f32 v100, v16, v17",
    "v_mov_b32_dpp v100, v16 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
    "v_readlane_b32 s20, v16, 3",
    "v_readfirstlane_b32 s20, v16",
    "v_cmp_lt_f32_e64 s[20:21], v16, v1",
    "v_accvgpr_write_b32 a1, v16",
    "global_store_dword v[4:5], v16, off",
    "global_store_dwordx4 v[4:5], v[16:19], off",
    "global_load_dword v16, v[4:5], off",
    "buffer_store_dword v16, v1, s[8:11], 0 offen",
    "buffer_load_dwordx2 v[16:17], v1, s[8:11], 0 offen",
    "buffer_load_dword v16, s[8:11], 0 offen lds",
    "ds_write_b32 v1, v16",
    "ds_write_b32 v16, v1",
    "ds_read_b32 v16, v1",
    "ds_read_b32 v100, v17",
]


def matrix_pairs(arch: str) -> list[Pair]:
    pairs = []
    for name in matrix_names(arch):
        _, outputs = sources_of(name)
        producer = matrix(name, 16)
        uses = [use for use in USES if outputs > 1 or not re.search(r"v\[16:1[79]\]|v17", use)]
        uses = [use for use in uses if outputs > 2 or "v[16:19]" not in use]
        if arch == "gfx950":
            uses.append("v_permlane32_swap_b32 v16, v1")
        pairs += [(producer, use) for use in uses]
        for consumer in CONSUMERS[arch]:
            least = 16 + outputs - 2 if outputs > 1 else 16  # overlaps the last registers only
            pairs += [
                (producer, matrix(consumer, 100, a=16)),
                (producer, matrix(consumer, 16, c=16)),
                (producer, matrix(consumer, 100, c=least)),
                (producer, matrix(consumer, least)),
            ]
        # A wrong D of another instruction, with C read late
        late = matrix(name, 60, c=16)
        pairs += [(late, f"v_mov_b32 v{16 + outputs - 1}, v1")]
        pairs += [(late, f"global_load_dword v{16 + outputs - 1}, v[4:5], off")]
    return pairs


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_matrix_results(arch: str) -> None:
    needed = compare(matrix_pairs(arch), arch)
    assert {0, 2, 4, 5, 7 if arch == "gfx942" else 8, 18} <= set(needed)


@pytest.mark.parametrize("formats", ["", " cbsz:4 blgp:2"])
def test_matrix_instructions_whose_length_depends_on_the_element_type(formats: str) -> None:
    size = {"": 8, "0": 8, "2": 6, "4": 4}
    a = size[m[1] if (m := re.search(r"cbsz:(\d)", formats)) else ""]
    b = size[m[1] if (m := re.search(r"blgp:(\d)", formats)) else ""]
    pairs = []
    for shape, outputs in (("16x16x128", 4), ("32x32x64", 16)):
        operands = f"{vgprs(16, outputs)}, {vgprs(200, a)}, {vgprs(208, b)}, 0"
        producer = f"v_mfma_f32_{shape}_f8f6f4 {operands}{formats}"
        pairs += [(producer, use) for use in USES]
    compare(pairs, "gfx950")


def sparse(name: str, d: int, a: int = 200, b: int = 208, index: int = 224) -> str:
    """A sparse matrix instruction with D, which accumulates, at v[d:]."""
    inputs, outputs = sources_of(name)
    return f"{name} {vgprs(d, outputs)}, {vgprs(a, inputs // 2)}, {vgprs(b, inputs)}, v{index}"


def sparse_pairs(arch: str) -> list[Pair]:
    """Each sparse instruction before every use of its result, and after what it may not outrun."""
    pairs = []
    for name in sorted(n for _, _, n, _ in _emulator.opcodes(arch) if n.startswith("v_smfmac_")):
        _, outputs = sources_of(name)
        last = 16 + outputs - 2  # overlaps the last registers of a result at v16
        producer = sparse(name, 16)
        pairs += [(producer, use) for use in USES]
        for other in (producer, *(matrix(each, 16) for each in CONSUMERS[arch])):
            pairs += [
                (other, sparse(name, 16)),
                (other, sparse(name, last)),
                (other, sparse(name, 100, a=16)),
                (other, sparse(name, 100, b=16)),
                (other, sparse(name, 100, index=16)),
            ]
        for consumer in CONSUMERS[arch]:
            pairs += [
                (producer, matrix(consumer, 100, a=16)),
                (producer, matrix(consumer, 16, c=16)),
                (producer, matrix(consumer, 100, c=last)),
                (producer, matrix(consumer, last)),
            ]
        pairs += [(f"v_mov_b32 v{r}, v1", sparse(name, 16)) for r in (16, 200, 208, 224)]
        pairs += [(producer, f"v_mov_b32 v{r}, v1") for r in (200, 208, 224)]
    return pairs


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_sparse_matrix_instructions(arch: str) -> None:
    needed = compare(sparse_pairs(arch), arch)
    assert {0, 2, 7 if arch == "gfx942" else 8} <= set(needed)
