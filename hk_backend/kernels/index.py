"""Reads the index of an operator's kernels, a JSON file that states nothing twice.

The record of a kernel has its own fields. It also has the shared fields of its code object's
kernels, and those of all kernels of the operator. Records name their argument struct by its place
in `structs`, and list the values of `facts`. Module hk_backend/lab/toolchain/index_file.py writes
the file:

    {"arch": ..., "operator": ..., "facts": [...], "structs": [...], "shared": {...},
     "code_objects": {
      "gemm": {"size": ..., "sha256": ..., "sources": ..., "shared": {...}, "kernels": {
        "gemm_bf16_256x256": {...}, ...}}}}
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hk_backend.kernels.arguments import Arguments, Field
from hk_backend.kernels.entry import CodeObjectError, KernelEntry, Tile
from hk_backend.kernels.figures import Figures

Record = dict[str, Any]


@functools.cache
def read_index(path: Path) -> tuple[KernelEntry, ...]:
    """The kernels of an index file. Raises `CodeObjectError` if it is damaged or in the wrong
    place."""
    try:
        data = json.loads(path.read_text())
        structs = [arguments_of(struct) for struct in data["structs"]]
        place = (data["arch"], data["operator"])
        found = tuple(
            entry_of(
                name,
                {**record, "arguments": structs[record["arguments"]]},
                data["code_objects"][code_object],
                path.with_name(f"{code_object}.co"),
                data["operator"],
            )
            for code_object, name, record in records(data)
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CodeObjectError(f"{path} is damaged: {type(error).__name__}: {error}") from None
    if place != (path.parent.name, path.stem):
        raise CodeObjectError(
            f"{path} is of {place[1]} for {place[0]}, not of {path.stem} for {path.parent.name}"
        )
    return found


def records(index: Record) -> Iterator[tuple[str, str, Record]]:
    """Yields the code object, the name and the whole record of each kernel, facts by name."""
    for code_object, file in index["code_objects"].items():
        shared = merged(index["shared"], file["shared"])
        for name, own in file["kernels"].items():
            record = merged(shared, own)
            facts = dict(zip(index["facts"], record["facts"], strict=True))
            yield code_object, name, {**record, "facts": facts}


def merged(shared: Record, own: Record) -> Record:
    """`shared` with the fields of `own`, also within the fields that both have."""
    inner = {
        key: merged(shared[key], value)
        for key, value in own.items()
        if key in shared and isinstance(value, dict)
    }
    return {**shared, **own, **inner}


def arguments_of(struct: Record) -> Arguments:
    return Arguments(struct["size"], tuple(Field(**field) for field in struct["fields"]))


def entry_of(name: str, record: Record, file: Record, path: Path, operator: str) -> KernelEntry:
    """The entry of a kernel in the code object `path`, from its whole record and its `file`.

    Raises `KeyError`, `TypeError` or `ValueError` if the record is damaged.
    """
    made = {
        **record,
        "tile": Tile(**record["tile"]),
        "figures": Figures(**record["figures"]),
    }
    return KernelEntry(
        name=name,
        symbol=name,
        operator=operator,
        arch=path.parent.name,
        path=path,
        lines=path.with_suffix(".lines"),
        size=file["size"],
        sha256=file["sha256"],
        **made,
    )
