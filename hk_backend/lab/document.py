"""Writes generated text between two lines of a document."""

from __future__ import annotations

from pathlib import Path


class DocumentError(ValueError):
    """The document has no place for the text."""


def put_into(document: Path, marks: tuple[str, str], text: str) -> None:
    """Replace the text between two lines of a document.

    Raises `DocumentError` if a line is missing.
    """
    first, last = marks
    before, begin, rest = document.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise DocumentError(f"{document}: no lines {first.strip()} and {last.strip()}")
    document.write_text(f"{before}{first}\n{text}\n\n{last}{after}")
