"""Checks of what a plugin relies on in its engine, which run none of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from hk_backend.terms.verdict import SERVED, Verdict, refused


def verdict_of(*parts: Callable[[], Iterable[Verdict]]) -> Verdict:
    """The first refusal of `parts`; a failed import or a missing attribute counts as one."""
    try:
        return first_refusal(*(verdict for part in parts for verdict in part()))
    except (ImportError, AttributeError) as error:
        return refused(f"something that the plugin relies on is missing: {error}")


def why_unknown(engine: str, contract: Verdict) -> str:
    """Reason why a route is not installed in an engine that breaks its contract; or empty."""
    return "" if contract else f"{engine} is not one the plugin knows: {contract.why}"


def first_refusal(*verdicts: Verdict) -> Verdict:
    return next((verdict for verdict in verdicts if not verdict), SERVED)


def has_parameters(function: Callable[..., Any], expected: tuple[str, ...]) -> Verdict:
    """Whether the first parameters of `function` are `expected`, in order."""
    found = tuple(inspect.signature(function).parameters)
    if found[: len(expected)] == expected:
        return SERVED
    name = getattr(function, "__qualname__", repr(function))
    return refused(f"{name}({', '.join(found)}), expected ({', '.join(expected)}, ...)")


def has_members(owner: Any, names: tuple[str, ...]) -> Verdict:
    missing = [name for name in names if not hasattr(owner, name)]
    return refused(f"{owner.__name__} has no {', '.join(missing)}") if missing else SERVED


def has_fields(owner: Any, names: tuple[str, ...]) -> Verdict:
    """Whether the dataclass `owner` has fields of these names."""
    present = {field.name for field in fields(owner)}
    missing = [name for name in names if name not in present]
    return refused(f"{owner.__name__} has no {', '.join(missing)}") if missing else SERVED


CREATE_WEIGHTS = (
    "self",
    "layer",
    "input_size_per_partition",
    "output_partition_sizes",
    "input_size",
    "output_size",
    "params_dtype",
)
APPLY = ("self", "layer", "x", "bias")
PROCESS = ("self", "layer")
