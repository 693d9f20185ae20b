"""Checks of what a plugin relies on in its engine, which run none of it.

A contract lists it by module, in lines of these forms:

    LinearBase                                a name
    LinearBase.__init__(self, input_size)     a function, with its first parameters in order
    ForwardMode has EXTEND, DECODE            members of a class or module
    ForwardBatch has fields seq_lens          fields of a dataclass
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from importlib import import_module
from operator import attrgetter
from typing import Any

from hk_backend.terms.verdict import SERVED, Verdict, refused

CREATE_WEIGHTS = (
    "create_weights(self, layer, input_size_per_partition, output_partition_sizes, input_size, "
    "output_size, params_dtype)"
)
APPLY = "(self, layer, x, bias)"
PROCESS = "process_weights_after_loading(self, layer)"


def verdict_of(
    contract: Mapping[str, Iterable[str]], *others: Callable[[], Iterable[Verdict]]
) -> Verdict:
    """The first refusal of a contract and `others`.

    A failed import or a missing attribute counts as one.
    """
    try:
        for module, lines in contract.items():
            if not (verdict := keeps(import_module(module), lines)):
                return verdict
        return first_refusal(verdict for other in others for verdict in other())
    except (ImportError, AttributeError) as error:
        return refused(f"something that the plugin relies on is missing: {error}")


def why_unknown(engine: str, contract: Verdict) -> str:
    """Reason why a route is not installed in an engine that breaks its contract; or empty."""
    return "" if contract else f"{engine} is not one the plugin knows: {contract.why}"


def first_refusal(verdicts: Iterable[Verdict]) -> Verdict:
    return next((verdict for verdict in verdicts if not verdict), SERVED)


def keeps(owner: Any, lines: Iterable[str]) -> Verdict:
    """Whether `owner`, a module or a class, has what `lines` say.

    Raises:
        AttributeError: a name is missing.
    """
    return first_refusal(_keeps_line(owner, line) for line in lines)


def _keeps_line(owner: Any, line: str) -> Verdict:
    name, has, members = line.partition(" has ")
    name, called, parameters = name.partition("(")
    found = attrgetter(name)(owner)
    if called:
        return _has_parameters(found, parameters.removesuffix(")"))
    return _has_members(found, members) if has else SERVED


def _has_parameters(function: Callable[..., Any], expected: str) -> Verdict:
    found = ", ".join(inspect.signature(function).parameters)
    if not expected or f"{found}, ".startswith(f"{expected}, "):
        return SERVED
    name = getattr(function, "__qualname__", repr(function))
    return refused(f"{name}({found}), expected ({expected}, ...)")


def _has_members(owner: Any, expected: str) -> Verdict:
    names = expected.removeprefix("fields ")
    if names == expected:
        missing = [name for name in names.split(", ") if not hasattr(owner, name)]
    else:
        present = {field.name for field in fields(owner)}
        missing = [name for name in names.split(", ") if name not in present]
    return refused(f"{owner.__name__} has no {', '.join(missing)}") if missing else SERVED
