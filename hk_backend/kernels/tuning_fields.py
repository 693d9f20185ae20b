"""The fields of a line of a tuning file (tuning.py): what each may hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hk_backend.kernels.catalogue import arches
from hk_backend.kernels.gemm_plan import MOST_SPLITS

MEASURED, MODELLED = "measured", "modelled"
LARGEST = 1 << 24
"""Of M, N and K."""


class TuningError(ValueError):
    """A file of times that cannot be used, and why."""


class Field(NamedTuple):
    """What one may hold, as a test and in words; whether a line may lack it."""

    is_valid: Callable[[Any], bool]
    valid: str
    optional: bool = False


def _whole(most: int) -> Field:
    return Field(lambda v: type(v) is int and 1 <= v <= most, f"a whole number, 1 to {most}")


def _one_of(*names: str) -> Field:
    return Field(lambda v: v in names, " or ".join(map(repr, names)))


def _time(optional: bool = False) -> Field:
    return Field(
        lambda v: type(v) in (int, float) and math.isfinite(v) and v > 0,
        "microseconds, a finite number above 0",
        optional,
    )


def _text(optional: bool = False) -> Field:
    return Field(lambda v: isinstance(v, str) and v != "", "a name", optional)


FIELDS: Mapping[str, Field] = {
    "arch": _one_of(*arches()),
    "compute_units": _whole(4096),
    "activations": _one_of("bf16", "f16", "e4m3"),
    "weights": _one_of("bf16", "f16", "e4m3"),
    "scales": _one_of("vectors", "blocks"),
    "m": _whole(LARGEST),
    "n": _whole(LARGEST),
    "k": _whole(LARGEST),
    "kernel": _text(),
    "splits": _whole(MOST_SPLITS),
    "microseconds": _time(),
    "source": _one_of(MEASURED, MODELLED),
    "device": _text(optional=True),
    "sha256": Field(
        lambda v: isinstance(v, str) and re.fullmatch("[0-9a-f]{64}", v) is not None,
        "64 digits of 0-9 and a-f",
    ),
    "stock": _text(optional=True),
    "stock_microseconds": _time(optional=True),
}
TOGETHER = ("stock", "stock_microseconds")


def checked(line: bytes) -> dict[str, Any]:
    """The fields of a line. Raises `TuningError`: the field, its value, and what is valid."""
    values = _object(line)
    for name, value in values.items():
        if name not in FIELDS:
            raise TuningError(f"{name} is no field; valid: {', '.join(FIELDS)}")
        if not FIELDS[name].is_valid(value):
            raise TuningError(f"{name} = {json.dumps(value)}; valid: {FIELDS[name].valid}")
    for name, field in FIELDS.items():
        if name not in values and not field.optional:
            raise TuningError(f"{name} is missing; valid: {field.valid}")
    measured = values["source"] == MEASURED
    if measured != ("device" in values):
        raise TuningError("device; valid: a name where source is 'measured', else none")
    if len(values.keys() & set(TOGETHER)) == 1 or (TOGETHER[0] in values and not measured):
        raise TuningError(f"{' and '.join(TOGETHER)}; valid: both, of a measured line, or none")
    return values


def _object(line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line.decode(), object_pairs_hook=_once)
    except TuningError:
        raise
    except ValueError as error:  # of the encoding, or of JSON
        raise TuningError(f"not JSON: {error}; valid: one object") from None
    if not isinstance(values, dict):
        raise TuningError(f"{line.decode().strip()!r}; valid: one JSON object")
    return values


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise TuningError(f"{name} is there twice; valid: once")
    return dict(pairs)
