"""Work in a forked child: SGLang is imported once, and a plugin's patches end with the child."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hk_backend.config import get_config


@dataclass(frozen=True)
class Done:
    """The end of a child's work. `result`: what the work returned, if it did; `log`: its lines,
    `LEVEL logger message`."""

    exitcode: int | None
    result: Any
    log: list[str]


def forked(work: Callable[[], Any], **environment: str) -> Done:
    """Call `work` in a child, whose only variables of HK are those of `environment`."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(work, environment, sender))
    child.start()
    sender.close()
    try:
        result, log = receiver.recv()
    except EOFError:
        result, log = None, []
    child.join()
    return Done(child.exitcode, result, log)


def _run(work: Callable[[], Any], environment: dict[str, str], sender: Any) -> None:
    for name in [name for name in os.environ if name.startswith("HK_")]:
        del os.environ[name]
    os.environ.update(environment)
    get_config.cache_clear()
    log: list[str] = []
    logging.getLogger().handlers = [_Lines(log)]
    logging.getLogger().setLevel(logging.INFO)
    sender.send((work(), log))


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{record.levelname} {record.name} {record.getMessage()}")
