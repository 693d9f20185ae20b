"""Restores an engine after a test: everything that the plugin's routes change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hk_backend.routing.routes import routes


@contextmanager
def restored(owners: list[Any], tables: list[Any]) -> Iterator[None]:
    """Reset the counters, and put everything back at the end.

    `owners`: classes and modules whose members are put back. `tables`: lists and dictionaries whose
    contents are put back.
    """
    members = [(owner, dict(vars(owner))) for owner in owners]
    contents = [(table, table.copy()) for table in tables]
    routes.reset()
    try:
        yield
    finally:
        routes.reset()
        for owner, before in members:
            for name in vars(owner).keys() - before.keys():
                delattr(owner, name)
            for name, member in before.items():
                if vars(owner)[name] is not member:
                    setattr(owner, name, member)
        for table, content in contents:
            table.clear()
            (table.update if isinstance(table, dict) else table.extend)(content)
