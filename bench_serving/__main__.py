"""`python -m bench_serving demo | serve | kernels`, from a checkout."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Serving and kernel benchmarks.")
console = Console()


@app.callback()
def main() -> None:
    """Keeps the command's name even if there is only one."""


@app.command()
def demo(
    models: Annotated[Path, typer.Option(help="Where the checkpoint is kept.")] = Path("models"),
    results: Annotated[Path, typer.Option(help="Where demo.json goes.")] = Path("results"),
    prompt_tokens: Annotated[int, typer.Option(min=16, max=1900)] = 1024,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """Serve SmolLM2 with stock vLLM and with HK; compare answers and speed."""
    from bench_serving import demo as suite
    from bench_serving.server import ServerError
    from bench_serving.smollm2 import FetchError

    try:
        failures = suite.run(models, results, prompt_tokens, rounds, console)
    except (FetchError, ServerError, suite.DemoError) as error:
        console.print(f"[red]error:[/red] {error}", markup=True, soft_wrap=True)
        raise typer.Exit(1) from None
    for failure in failures:
        console.print(f"[red]failed:[/red] {failure}")
    console.print(f"written: {results / 'demo.json'}")
    raise typer.Exit(1 if failures else 0)


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # unwinds, so that servers are ended


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _exit_on_signal)
    signal.signal(signal.SIGHUP, _exit_on_signal)
    app()
