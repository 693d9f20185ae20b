"""`hk-backend time NAME --explain`: explains how a call is served on a GPU.

Module `explanations/<name>.py` explains the calls of one kind: its `explain` takes what is `Asked`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer
from rich.console import Console

from hk_backend.config import ConfigError
from hk_backend.operators import names, part
from hk_backend.terminal import errors
from hk_backend.terminal.output import print_json, progress

EXPLANATIONS = "lab.commands.explanations"


@dataclass(frozen=True)
class Asked:
    """The options of the command, and `say`, which is told what is done next."""

    shape: str
    format: str
    head_size: int
    arch: str
    clocked: int
    say: Callable[[str], object]


@dataclass(frozen=True)
class Explanation:
    """An explanation as plain data, and the function that prints it."""

    plain: dict[str, Any]
    show: Callable[[Console], None]


def explain(
    name: str, shape: str, format: str, head_size: int, arch: str, clocked: int, as_json: bool
) -> None:
    """Prints the explanation. Raises `typer.BadParameter` if the arguments name no call."""
    from hk_backend.kernels import CodeObjectError

    module = part(EXPLANATIONS, name) if name else None
    if module is None:
        valid = " or ".join(names(EXPLANATIONS))
        said = f"{name!r} is not valid with --explain: expected {valid}"
        raise typer.BadParameter(said, param_hint="KERNEL")
    known = (CodeObjectError, ConfigError, RuntimeError)
    with errors.in_one_line(progress, *known), progress.status("") as line:
        asked = Asked(shape, format, head_size, arch, clocked, line.update)
        found: Explanation = module.explain(asked)
    if as_json:
        return print_json(found.plain)
    found.show(Console())
    return None
