"""`hk-backend tune`: measures a model's layers before a server starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Annotated

import typer
from rich.console import Console

from hk_backend.cli.known_engines import ENGINES, installed
from hk_backend.config import MEASURE_SECONDS, ConfigError, read_config
from hk_backend.terminal import errors
from hk_backend.terminal.output import JsonFlag, print_json, progress

LOADERS = "hk_backend.loaders"
"""Group of the engine plugins' entry points of type `Load`.

Each loads a model once, without its weights, with the engine's own options, and ends the engine.
"""
Load = Callable[[str, Sequence[str]], None]

Model = Annotated[str, typer.Argument(metavar="MODEL", help="As the engine is given it.")]
Options = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ENGINE OPTIONS]", help="The options that the server will have."),
]
Engine = Annotated[str, typer.Option(help="vllm or sglang; by default the installed one.")]
Seconds = Annotated[
    float, typer.Option(min=0, help="For all measurements: more seconds reach more rows.")
]
Again = Annotated[
    bool, typer.Option("--again", help="First forget what was measured on this machine.")
]


def tune(
    model: Model,
    options: Options = None,
    engine: Engine = "",
    seconds: Seconds = 60.0,
    again: Again = False,
    as_json: JsonFlag = False,
) -> None:
    """Load a model once in the engine, with random weights, and measure HK beside the engine.

    The answers are kept for the server, which then measures nothing when it starts. They hold for
    the same number of threads: give the server's own options, behind MODEL. Exit code 1 if
    something is in the way.
    """
    from hk_backend.cli.evidence import kept_here, machine_of_engines
    from hk_backend.measurements import folder

    os.environ.setdefault("HK_BACKEND", "1")
    os.environ["HK_EVIDENCE"] = "measure"
    os.environ[MEASURE_SECONDS] = str(seconds)
    with errors.in_one_line(progress, ConfigError, TuneError, OSError):
        load = loader(engine)
        device = read_config().device
        if device != "auto":
            raise TuneError(f"HK_DEVICE={device} names a device: nothing is measured; unset it")
        if again:
            folder.forget(machine_of_engines())
        with _output_on_stderr():
            load(model, options or [])
    found = kept_here()
    if as_json:
        return print_json(found.as_json())
    console = Console(soft_wrap=True)
    for line in found.lines():
        console.print(line, highlight=False, markup=False)
    return None


@contextmanager
def _output_on_stderr() -> Iterator[None]:
    """Redirect the output of the engine and its processes to standard error.

    Standard output is for the command's own result.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


class TuneError(RuntimeError):
    """Nothing can be measured; the message says why."""


def loader(engine: str) -> Load:
    """The function that loads a model in an engine.

    Args:
        engine: name of the engine; empty: the one that is installed.

    Raises:
        TuneError: the engine is not installed, or several are and `engine` names none.
    """
    found = list(installed())
    if engine and engine not in ENGINES:
        raise TuneError(f"--engine {engine!r} is not valid: expected {' or '.join(ENGINES)}")
    if engine and engine not in found:
        raise TuneError(f"{engine} is not installed: HK can only be measured beside the engine")
    if not found:
        raise TuneError("no engine is installed: HK can only be measured beside vLLM or SGLang")
    if not engine and len(found) > 1:
        raise TuneError(f"--engine: several are installed: name one of {', '.join(found)}")
    (plugin,) = entry_points(group=LOADERS, name=engine or found[0])
    load: Load = plugin.load()
    return load
