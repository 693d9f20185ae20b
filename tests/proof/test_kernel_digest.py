"""Kernels that do the same share a digest, and no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.kernels.toolchain.elf import Elf
from tests.kernels.test_gemm_mutants import entry_with
from tests.proof import kernel_digest as module
from tests.proof.kernel_digest import companions, instructions, kernel_digest, mnemonics

BF16, F16 = (catalogue("gfx950").kernel(f"gemm_{type}_128x64") for type in ("bf16", "f16"))
PART = catalogue("gfx950").kernel("attention_prefill_bf16_d64_packed_part")


def test_twins_of_two_types_share_the_digest_without_types() -> None:
    assert kernel_digest(BF16) != kernel_digest(F16)
    assert kernel_digest(BF16, with_types=False) == kernel_digest(F16, with_types=False)


def test_no_two_kernels_that_differ_share_one() -> None:
    kernels = catalogue("gfx950").kernels
    by_digest = {kernel_digest(entry): entry for entry in kernels}
    same = [entry for entry in kernels if by_digest[kernel_digest(entry)] != entry]
    assert all(instructions(e) == instructions(by_digest[kernel_digest(e)]) for e in same)
    assert len(by_digest) > len(kernels) / 2


def flipped(entry: KernelEntry, symbol: str, offset: int, folder: Path) -> KernelEntry:
    """The kernel with another bit in what `symbol`, added to its own, names."""
    code = bytearray(entry.code_object())
    code[code.index(Elf(bytes(code)).symbol_bytes(entry.symbol + symbol)) + offset] ^= 1
    return entry_with(entry, bytes(code), folder / f"{entry.name}{symbol}.hsaco")


def test_what_matters(tmp_path: Path) -> None:
    """The launch, the code and its descriptor; not the name."""
    assert kernel_digest(replace(BF16, name="another")) == kernel_digest(BF16)
    others = (
        replace(BF16, block=BF16.block // 2),
        replace(BF16, dynamic_lds=BF16.dynamic_lds + 16),
        flipped(BF16, "", 64, tmp_path),
        flipped(BF16, ".kd", 48, tmp_path),
    )
    assert kernel_digest(BF16) not in map(kernel_digest, others)


def test_the_kernel_that_joins_parts_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, (merge,) = PART, companions(PART)
    whole = kernel_digest(entry)
    other = flipped(merge, "", 64, tmp_path)
    monkeypatch.setattr(module, "companions", lambda kernel: [other] if kernel == entry else [])
    kernel_digest.cache_clear()
    assert kernel_digest(entry) != whole
    kernel_digest.cache_clear()


def test_mnemonics_are_those_of_the_semantics() -> None:
    found = mnemonics(BF16)
    assert "v_mfma_f32_32x32x16_bf16" in found or "v_mfma_f32_16x16x32_bf16" in found
    assert not any(name.endswith(("_e32", "_e64")) for name in found)
