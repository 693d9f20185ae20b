"""A command that takes long says so, also in a pipe or a log."""

from __future__ import annotations

from io import StringIO
from threading import Event

import pytest
from rich.console import Console

from hk_backend import progress
from hk_backend.quantize import command


class Beats:
    """A pulse that beats once, when a test says so, and not after seconds."""

    def __init__(self) -> None:
        self._go, self._printed = Event(), Event()

    def one(self) -> None:
        """Let it print a line."""
        self._go.set()
        assert self._printed.wait(60)
        self._go.clear()
        self._printed.clear()

    def clock(self) -> Event:
        """A stand-in for the pulse's own event."""
        beats, first = self, iter([True])

        class Clock(Event):
            def wait(self, timeout: float | None = None) -> bool:
                if next(first, False):
                    beats._go.wait()
                    return False
                beats._printed.set()
                return super().wait()

        return Clock()


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> Beats:
    made = Beats()
    monkeypatch.setattr(progress, "Event", made.clock)
    return made


def test_a_pipe_gets_a_line_now_and_then(beats: Beats) -> None:
    console = Console(file=StringIO())
    with progress.working(console, "looking") as say:
        say("3/16  torch")
        beats.one()
    first, second = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert (first, second) == ("looking ...", "looking: 3/16  torch (0:00)")
    console = Console(file=StringIO())
    with command._progress(console) as bar:
        bar.add_task("model.layers.3", total=4, completed=1)
        beats.one()
        assert bar.disable
    assert console.file.getvalue() == "model.layers.3 25% (0:00)\n"  # type: ignore[attr-defined]


def test_a_terminal_gets_one_moving_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a quantisation its bar, and no pulse."""
    console = Console(file=StringIO(), force_terminal=True, width=80)
    with progress.working(console, "looking") as say:
        say("3/16  torch")
    assert "looking ..." not in console.file.getvalue()  # type: ignore[attr-defined]
    monkeypatch.setattr(command, "pulse", None)  # a call would raise
    with command._progress(Console(file=StringIO(), force_terminal=True)) as bar:
        assert not bar.disable
