"""The sizes of a launch as text, `name=value, ...`, and their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LONGEST = 1 << 17
"""Most keys of a request, and longest side of a GEMM, for which the model is fast enough."""
MOST = 1 << 12
"""Largest number of requests, of heads and of parts."""
FLAGS = ("causal",)
"""Names that take no value."""


class ShapeError(ValueError):
    """The shape is not one of the kernel's family, or the kernel does not take it."""


def items_of(text: str, valid: Sequence[str]) -> dict[str, str]:
    """Splits `name=value, ...` into a dictionary; every name may occur once."""
    items: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in valid:
            raise ShapeError(f"{part!r} has no name of a size; valid: {', '.join(valid)}")
        if name in items:
            raise ShapeError(f"{name} is there twice")
        if (name in FLAGS) == bool(equals):
            raise ShapeError(f"{part!r}; valid: {name if name in FLAGS else f'{name}=NUMBER'}")
        items[name] = value
    return items


def numbers(items: Mapping[str, str], name: str, most: int, least: int = 1) -> list[int]:
    """Parses `1+2+3`; every number must be from `least` to `most`."""
    found = []
    for part in items[name].split("+"):
        if not part.strip().isdecimal() or not least <= int(part) <= most:
            raise ShapeError(f"{name}={items[name]}: {part!r}; valid: {least} to {most}")
        found.append(int(part))
    return found


def number(items: Mapping[str, str], name: str, most: int, default: int | None = None) -> int:
    """Parses one number, from 1 to `most`; it may be missing if there is a default."""
    if name not in items:
        if default is None:
            raise ShapeError(f"{name} is missing; valid: {name}=NUMBER, 1 to {most}")
        return default
    found = numbers(items, name, most)
    if len(found) > 1:
        raise ShapeError(f"{name}={items[name]}; valid: one number, 1 to {most}")
    return found[0]


def positive(**sizes: int) -> None:
    """Checks the sizes of a shape. Raises `ValueError` for one below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} = {size}; valid: 1 or more")
