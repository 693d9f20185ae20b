"""The argument of a kernel: one struct, packed from the field list in the catalogue."""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

FORMATS = {
    "pointer": "Q",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "bool": "?",
}
"""Field types of the catalogue, as codes of `struct`."""


class ArgumentError(ValueError):
    """An argument of a kernel is missing, unknown, of the wrong type or out of range."""


@dataclass(frozen=True)
class Field:
    """One member of the struct: its type is a key of `FORMATS`, its offset is in bytes."""

    name: str
    type: str
    offset: int

    def __post_init__(self) -> None:
        if self.type not in FORMATS:
            raise ValueError(f"{self.name}: {self.type!r} is not one of {_listed(FORMATS)}")

    @property
    def size(self) -> int:
        """Size in bytes."""
        return struct.calcsize(FORMATS[self.type])


@dataclass(frozen=True)
class Arguments:
    """The struct that a kernel takes by value. `size` is in bytes and includes tail padding."""

    size: int
    fields: tuple[Field, ...]

    @property
    def pointers(self) -> tuple[str, ...]:
        """Names of the fields that hold addresses. A launch may leave these null."""
        return tuple(field.name for field in self.fields if field.type == "pointer")

    def pack(self, values: Mapping[str, float | int | None]) -> bytes:
        """Packs the struct into bytes; padding is zero. A pointer may be None (null).

        Raises `ArgumentError`, which names the field.
        """
        names = [field.name for field in self.fields]
        if missing := [name for name in names if name not in values]:
            raise ArgumentError(f"missing {_listed(missing)}")
        if unknown := [name for name in values if name not in names]:
            raise ArgumentError(f"unknown {_listed(unknown)}; the fields are {_listed(names)}")
        packed = bytearray(self.size)
        for field in self.fields:
            value = _checked(field, values[field.name])
            try:
                struct.pack_into("<" + FORMATS[field.type], packed, field.offset, value)
            except (struct.error, OverflowError) as error:
                raise ArgumentError(
                    f"{field.name} = {value} is not a valid {field.type}: {error}"
                ) from None
        return bytes(packed)


def _checked(field: Field, value: float | int | None) -> float | int:
    if field.type == "float32":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ArgumentError(f"{field.name} must be a number, not {value!r}")
        return float(value)
    if field.type == "pointer" and value is None:
        return 0
    try:
        return operator.index(value)  # type: ignore[arg-type]  # raises for anything but an integer
    except TypeError:
        raise ArgumentError(f"{field.name} must be an integer, not {value!r}") from None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
