"""docs/tile-language.md names what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from hk_backend.kernels.toolchain import build
from hk_backend.kernels.toolchain.sources import SOURCES
from tests.tiles import layouts

DOCUMENT = (build.ROOT / "docs" / "tile-language.md").read_text()
SOURCES = [
    *(build.ROOT / "csrc" / "include").rglob("*.hpp"),
    *(path for path in (build.ROOT / SOURCES).rglob("*") if path.is_file()),
]


def code(text: str) -> Iterator[str]:
    """What stands in backticks, outside of drawings and commands."""
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def test_every_name_is_in_the_sources() -> None:
    """Types and constants, and operations as they are called."""
    known = set(re.findall(r"\w+", "".join(path.read_text() for path in SOURCES)))
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


def drawing(after: str) -> list[str]:
    text = DOCUMENT.split(after, 1)[1]
    return re.split(r"^```(?:text)?\n", text, flags=re.M)[1].splitlines()


def test_the_drawing_of_the_swizzle_is_right() -> None:
    """Each line "byte rows chunk ^ x", in both columns."""
    places = {128: layouts.spread_rows(16, 128), 256: layouts.spread_rows(16, 256)}
    seen = 0
    for line in drawing("## Swizzles"):
        halves = {128: line[:50], 256: line[50:]}
        for row_bytes, half in halves.items():
            found = re.search(r"(\d+)  rows? +(\d+)(?:, (\d+))? +chunks? (?:as|\^ (\d))", half)
            if found is None:
                continue
            byte, *rows = (int(number) for number in found.groups()[:3] if number)
            mixed = int(found[4] or 0)
            wanted = np.concatenate(
                [
                    16 * (np.arange(row_bytes // 16) ^ mixed) + i * row_bytes
                    for i in range(len(rows))
                ]
            )
            np.testing.assert_array_equal(places[row_bytes][rows].flatten() - byte, wanted)
            seen += 1
    assert seen == 16


def test_the_drawing_of_a_result_is_right() -> None:
    lines = [line for line in drawing("## Lane layouts") if line.startswith("rows")]
    assert len(lines) == 8
    for line in lines:
        first, last, other_half, low, high = re.fullmatch(
            r"rows +(\d+)- ?(\d+) +lane c( \+ 32)? +i +(\d+)- ?(\d+)", line
        ).groups()  # type: ignore[union-attr]
        lane, elements = 32 if other_half else 0, np.arange(int(low), int(high) + 1)
        rows = np.arange(int(first), int(last) + 1)
        np.testing.assert_array_equal(layouts.result_rows()[lane, elements], rows)
