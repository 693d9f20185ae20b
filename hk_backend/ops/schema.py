"""Converts a dataclass of arguments to the flat list that a `torch.library` schema allows.

The schema is derived from the dataclass: its fields in order, each by its type in `KINDS`. The list
is converted back in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar, get_type_hints

import torch

from hk_backend.terms.paged_kv import PagedKV

T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """Conversion of a field of one type. `types` are its schema entries, with `{}` for the field's
    name."""

    types: tuple[str, ...]
    flatten: Callable[[Any], Sequence[Any]] = lambda value: (value,)
    rebuild: Callable[..., Any] = lambda value: value


def _flat_cache(cache: PagedKV | None) -> Sequence[Any]:
    return (
        (None, None, [])
        if cache is None
        else (cache.key.tensor, cache.value.tensor, cache.as_ints())
    )


def _cache(key: torch.Tensor | None, value: torch.Tensor, layout: Sequence[int]) -> PagedKV | None:
    return None if key is None else PagedKV.from_ints(key, value, layout)


def _flat_scale(scale: float | torch.Tensor) -> Sequence[Any]:
    return (scale, 1.0) if isinstance(scale, torch.Tensor) else (None, scale)


def _scale(tensor: torch.Tensor | None, number: float) -> float | torch.Tensor:
    return number if tensor is None else tensor


KINDS: dict[Any, Kind] = {
    torch.Tensor: Kind(("Tensor {}",)),
    torch.Tensor | None: Kind(("Tensor? {}",)),
    bool: Kind(("bool {}",)),
    int: Kind(("int {}",)),
    float: Kind(("float {}",)),
    int | None: Kind(("int? {}",)),
    float | None: Kind(("float? {}",)),
    float | torch.Tensor: Kind(("Tensor? {}", "float {}_number"), _flat_scale, _scale),
    PagedKV | None: Kind(
        ("Tensor? {}_key", "Tensor? {}_value", "int[] {}_layout"), _flat_cache, _cache
    ),
}


class Schema(Generic[T]):
    """The registered form of the arguments `cls`. The operator writes the fields `cls.written`."""

    def __init__(self, cls: type[T]) -> None:
        self._cls = cls
        types = get_type_hints(cls)
        self._fields = [(field.name, KINDS[types[field.name]]) for field in fields(cls)]  # type: ignore[arg-type]
        written: tuple[str, ...] = cls.written  # type: ignore[attr-defined]
        names = [
            type_.format(name).replace("Tensor", f"Tensor({chr(97 + written.index(name))}!)")
            if name in written
            else type_.format(name)
            for name, kind in self._fields
            for type_ in kind.types
        ]
        operator: str = cls.operator  # type: ignore[attr-defined]
        self.text = f"{operator}({', '.join(names)}) -> ()"

    def flatten(self, arguments: T) -> list[Any]:
        flat: list[Any] = []
        for name, kind in self._fields:
            flat += kind.flatten(getattr(arguments, name))
        return flat

    def rebuild(self, flat: Sequence[Any]) -> T:
        """Rebuilds the arguments from the result of `flatten`."""
        values, left = {}, list(flat)
        for name, kind in self._fields:
            count = len(kind.types)
            values[name], left = kind.rebuild(*left[:count]), left[count:]
        return self._cls(**values)
