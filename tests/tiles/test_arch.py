"""The seam between the language and an arch, as the compiler sees it.

What gfx942 has in common with gfx950 runs there already (test_wave.py); what is still to come for
it says so when a kernel uses it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hk_backend.kernels.toolchain import build, compiler
from tests.tiles.launch import GFX942, GFX950, arches, errors_of

INCLUDE = build.ROOT / "csrc" / "include"
HEADERS = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.hpp"))


@arches
def test_each_header_compiles_by_itself(arch: str, tmp_path: Path) -> None:
    headers = [header for header in HEADERS if not header.startswith("hk/arch/gfx")]
    for number, header in enumerate(headers):
        (tmp_path / f"{number}.hip").write_text(f'#include "{header}"\n')
    flags = [*build.FLAGS, f"-I{INCLUDE}", f"--offload-arch={arch}", "-fsyntax-only"]
    compiler.find().run("clang++", *flags, *sorted(tmp_path.glob("*.hip")), cwd=build.ROOT)


TILE = '#include "hk/hk.hpp"\nusing namespace hk;\nusing Tile = SharedTile<bf16, 64, 64>;\n'
KERNEL = TILE + "HK_KERNEL(64, 1) k(u32* out) {{ {body} }}"
SEAM = {
    "swizzle": (
        "*out = Tile::kBytes;",
        "SpreadRows is filled by copies of 16 bytes a lane",
    ),
    "transposed read": (
        "Vec<u32, 2> words; arch::read_lds_transposed<0>(words, 0); *out = words[0];",
        "gfx942 has no transposed LDS read: transpose while copying",
    ),
    "LDS": (
        "static_assert(100 * 1024 <= arch::kLdsBytes); *out = 1;",
        "static assertion failed due to requirement",
    ),
}


@pytest.mark.parametrize("use", SEAM)
def test_what_gfx942_lacks_says_so(use: str) -> None:
    body, message = SEAM[use]
    text = KERNEL.format(body=body)
    assert errors_of(text, GFX950) == []
    assert any(message in error for error in errors_of(text, GFX942))


def test_another_arch_is_refused() -> None:
    (first, *_) = errors_of(KERNEL.format(body="*out = 1;"), "gfx90a")
    assert first == '"hk: compile with --offload-arch=gfx950 or gfx942"'


@pytest.mark.parametrize(
    "product", ["Mma<bf16, f16>", "Mma<bf16, bf16, arch::MmaShape<16, 16, 64>>"]
)
def test_an_instruction_that_the_arch_lacks_is_refused(product: str) -> None:
    errors = errors_of(f"{TILE} int rows() {{ return {product}::kRows; }}", GFX950)
    wanted = "the arch has no matrix instruction of this shape for these elements"
    assert any(wanted in error for error in errors)
