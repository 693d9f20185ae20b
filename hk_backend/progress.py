"""Signs of life of a long command: a moving line on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console
from rich.text import Text

SECONDS = 10.0
"""Seconds between two lines of a long command."""


@contextmanager
def working(console: Console, what: str) -> Iterator[Callable[[str], None]]:
    """Shows that `what` is being done while the block runs.

    Yields:
        a function to call with the name of the part that runs.
    """
    if console.is_terminal:
        with console.status(what) as line:
            yield lambda part: line.update(f"{what}: {part}")
        return
    _say(console, f"{what} ...")
    latest = [what]
    with pulse(console, lambda: latest[0], SECONDS):
        yield lambda part: latest.__setitem__(0, f"{what}: {part}")


@contextmanager
def pulse(console: Console, text: Callable[[], str], seconds: float) -> Iterator[None]:
    """Prints `text()` and the elapsed time every `seconds` while the block runs."""
    over = Event()
    start = time.monotonic()

    def beat() -> None:
        while not over.wait(seconds):
            minutes, rest = divmod(round(time.monotonic() - start), 60)
            _say(console, f"{text()} ({minutes}:{rest:02})")

    thread = Thread(target=beat, name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)
