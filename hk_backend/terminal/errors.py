"""Reports an error that stops a command: one line, and exit code 1; 2 for a bad argument."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

LIBRARYS_WORDS = "Value error, "
"""Words with which typer 0.29 begins a message about a choice."""


class Group(TyperGroup):
    """A group of commands whose messages about arguments begin with the argument's value."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(LIBRARYS_WORDS)
            raise


@contextmanager
def in_one_line(console: Console, *kinds: type[Exception]) -> Iterator[None]:
    """Print an error of one of `kinds` without its traceback.

    Raises:
        typer.Exit: with code 1, after such an error.
    """
    try:
        yield
    except kinds as error:
        say(console, str(error))
        raise typer.Exit(1) from None


def say(console: Console, what: str) -> None:
    """Print one line in red, never wrapped."""
    console.print(Text(what, "red"), soft_wrap=True)
