"""Parses comma-separated options before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence

import typer


def parse_names(text: str, valid: Sequence[str], option: str) -> list[str]:
    """Parse comma-separated names out of `valid`; raises typer.BadParameter for any other."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in valid:
            raise typer.BadParameter(f"{option}: {name!r} is not one of {', '.join(valid)}")
    return names


def parse_numbers(text: str, option: str, multiple_of: int = 1) -> list[int]:
    """Parse comma-separated positive numbers, each kept once; else raises typer.BadParameter."""
    numbers = []
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) < 1 or int(part) % multiple_of:
            kind = f"positive multiple of {multiple_of}" if multiple_of > 1 else "positive number"
            raise typer.BadParameter(f"{option}: {part.strip()!r} is not a {kind}")
        numbers.append(int(part))
    return list(dict.fromkeys(numbers))
