"""docs/tile-language.md names what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hk_backend.kernels.toolchain import build
from hk_backend.kernels.toolchain.sources import SOURCES

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
