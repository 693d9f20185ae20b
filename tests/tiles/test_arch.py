"""The tile language as the compiler sees it: each header by itself, refusals of what an arch lacks,
rows' numbers, and the names in its document."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hk_backend.kernels.row_sources import PAGED, block_reciprocal
from hk_backend.lab.toolchain import build, compiler
from hk_backend.lab.toolchain.compiler import ToolchainError
from hk_backend.lab.toolchain.sources import SOURCES

INCLUDE = build.ROOT / "csrc" / "include"
GFX942, GFX950 = "gfx942", "gfx950"
HEADERS = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.hpp"))


def errors_of(text: str, arch: str) -> list[str]:
    """The compiler's error messages, with the flags of the shipped kernels."""
    flags = [*build.FLAGS, f"-I{build.ROOT / SOURCES}", f"--offload-arch={arch}"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "text.hip"
        source.write_text(text)
        try:
            compiler.find().run("clang++", *flags, source, "-o", f"{folder}/out", cwd=build.ROOT)
        except ToolchainError as error:
            return re.findall(r"error: (.*)", str(error))
    return []


@pytest.mark.parametrize("arch", [GFX942, GFX950])
def test_each_header_compiles_by_itself(arch: str, tmp_path: Path) -> None:
    headers = [header for header in HEADERS if not header.startswith("hk/arch/gfx")]
    for number, header in enumerate(headers):
        (tmp_path / f"{number}.hip").write_text(f'#include "{header}"\n')
    flags = [*build.FLAGS, f"-I{INCLUDE}", f"--offload-arch={arch}", "-fsyntax-only"]
    compiler.find().run("clang++", *flags, *sorted(tmp_path.glob("*.hip")), cwd=build.ROOT)


TILE = '#include "hk/hk.hpp"\nusing namespace hk;\nusing Tile = SharedTile<bf16, 64, 64>;\n'
KERNEL = TILE + "HK_KERNEL(64, 1) k(u32* out) {{ {body} }}"
SEAM = {
    "swizzle": ("*out = Tile::kBytes;", "SpreadRows is filled by copies of 16 bytes a lane"),
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


DOCUMENT = (build.ROOT / "docs" / "tile-language.md").read_text()
LANGUAGE = [
    *INCLUDE.rglob("*.hpp"),
    *(path for path in (build.ROOT / SOURCES).rglob("*") if path.is_file()),
]


def code(text: str) -> Iterator[str]:
    """The words in backticks, outside of drawings and commands."""
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def test_every_name_is_in_the_sources() -> None:
    """Types and constants are known, and operations as they are called."""
    known = set(re.findall(r"\w+", "".join(path.read_text() for path in LANGUAGE)))
    names = {
        name
        for text in code(DOCUMENT)
        for name in re.findall(r"\b[A-Za-z]\w*(?=[<(])|\bk?[A-Z][a-z]\w*", text)
    }
    assert len(names) > 40
    assert names - known == {"op"}


def test_every_file_is_there() -> None:
    folders = [build.ROOT, build.ROOT / "csrc" / "include", build.ROOT / "csrc" / "include" / "hk"]
    files = {text for text in code(DOCUMENT) if re.fullmatch(r"[a-z0-9_./]+/[a-z0-9_.]*", text)}
    assert len(files) > 10
    for file in files:
        assert any((folder / file).exists() for folder in folders), file


def test_the_reciprocal_is_exact_for_all_it_claims() -> None:
    """Both ends of every last block are right while rows * block_size < 2^38
    (types/row_source.hpp)."""
    for block_size in range(16, 4096 + 16, 16):
        factor = block_reciprocal(PAGED, block_size)
        blocks = min(2**38 // block_size, 2**31) // block_size
        index = np.unique(np.r_[:2048, blocks - 2048 : blocks].clip(0, blocks - 1))
        for row in (index * block_size, index * block_size + block_size - 1):
            np.testing.assert_array_equal(row // 8 * factor >> 32, index)
