"""Writes the index of an operator's kernels: states once what kernels share."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from hk_backend.kernels.index import Record

LINES = 4
"""Levels of an index that have a line for each item: down to the kernels of a code object."""


def index_of(arch: str, operator: str, files: Mapping[str, Record]) -> Record:
    """Makes an index from code objects, each with the whole records of its `kernels`.

    Raises `ValueError` if the kernels do not have the same facts.
    """
    facts: list[str] = []
    structs: list[Record] = []

    def stored(record: Record) -> Record:
        """The record with its facts as a list, its struct as a number, and its fields in order."""
        facts[:] = facts or record["facts"]
        if list(record["facts"]) != facts:
            raise ValueError(f"kernels of {operator} with other facts: {facts}, {record['facts']}")
        struct = json.loads(json.dumps(record["arguments"]))  # as another build's index has it
        if struct not in structs:
            structs.append(struct)
        place, values = structs.index(struct), list(record["facts"].values())
        whole = {**record, "arguments": place, "facts": values}
        return cast(Record, json.loads(json.dumps(whole, sort_keys=True)))

    records = {
        name: {kernel: stored(record) for kernel, record in file["kernels"].items()}
        for name, file in sorted(files.items())
    }
    shared = _common(record for kernels in records.values() for record in kernels.values())
    code_objects = {}
    for name, kernels in records.items():
        rest = {kernel: _rest(record, shared) for kernel, record in kernels.items()}
        alike = _common(rest.values())
        own = {kernel: _rest(record, alike) for kernel, record in rest.items()}
        code_objects[name] = {**files[name], "shared": alike, "kernels": own}
    return {
        "arch": arch,
        "operator": operator,
        "facts": facts,
        "structs": structs,
        "shared": shared,
        "code_objects": code_objects,
    }


def text_of(value: Any, levels: int = LINES, indent: str = "\n") -> str:
    """JSON in which the upper `levels` have a line for each item, and items below are one line."""
    if not levels or not value or not isinstance(value, (dict, list)):
        return json.dumps(value)
    inner = value.values() if isinstance(value, dict) else value
    items = [text_of(item, levels - 1, f"{indent} ") for item in inner]
    first, last = "[]"
    if isinstance(value, dict):
        first, last = "{}"
        items = [f"{json.dumps(key)}: {item}" for key, item in zip(value, items, strict=True)]
    return f"{first}{indent} " + f",{indent} ".join(items) + f"{indent}{last}"


def _common(records: Iterable[Record]) -> Record:
    """Fields that all records have with the same value."""
    return functools.reduce(_common_to_two, records)


def _common_to_two(one: Record, other: Record) -> Record:
    found: Record = {}
    for key in (key for key in one if key in other):
        if one[key] == other[key]:
            found[key] = one[key]
        elif isinstance(one[key], dict) and (inner := _common_to_two(one[key], other[key])):
            found[key] = inner
    return found


def _rest(record: Record, shared: Record) -> Record:
    """Fields of a record that are not in `shared`."""
    found: Record = {}
    for key, value in record.items():
        if key not in shared:
            found[key] = value
        elif isinstance(value, dict) and (inner := _rest(value, shared[key])):
            found[key] = inner
    return found
