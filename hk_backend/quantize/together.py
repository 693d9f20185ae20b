"""Threads that run the parts of a computation side by side, and meet for what they share.

Each has one of torch's threads: an operation of a few microseconds costs more if it is divided, and
on a busy machine each division waits for the slowest thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Barrier, BrokenBarrierError, local
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


class Together:
    """The threads that torch has here, but at most one for each of `most` parts."""

    def __init__(self, most: int) -> None:
        self._all = torch.get_num_threads()
        self.count = min(self._all, most)
        self._barrier = Barrier(self.count)
        self._thread = local()

    @property
    def part(self) -> int:
        """The number of the part that this thread runs."""
        found: int = self._thread.part
        return found

    def run(self, function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        """The results of `function` for the `count` parts, each in a thread of its own."""
        self._barrier.reset()

        def result_of(number: int) -> Result:
            self._thread.part = number
            try:
                return function(parts[number])
            except BaseException:
                self._barrier.abort()  # nobody waits for this thread any more
                raise

        with torch_threads(1), ThreadPoolExecutor(self.count) as pool:
            try:
                futures = [pool.submit(result_of, number) for number in range(self.count)]
                wait(futures)
            except BaseException:
                self._barrier.abort()
                raise
        failures = [error for future in futures if (error := future.exception())]
        failures.sort(key=lambda error: isinstance(error, BrokenBarrierError))  # others come first
        if failures:
            raise failures[0]
        return [future.result() for future in futures]

    def once(self, function: Callable[[], None]) -> None:
        """Call `function` in one thread when all have come here, with all of torch's threads.

        The others wait until it is done.
        """
        if self._barrier.wait() == 0:
            with torch_threads(self._all):
                function()
        self._barrier.wait()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
