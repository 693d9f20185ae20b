"""Runs `hk-backend quantize`: a job, with its progress on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from hk_backend.config import get_config
from hk_backend.devices import always
from hk_backend.devices.cpu.device import cpu_device
from hk_backend.progress import pulse
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.job import Job
from hk_backend.quantize.settings import Settings

SECONDS = 30.0
"""Seconds between two lines of progress, where there is no terminal."""


class Interrupted(Exception):
    """The user pressed Ctrl-C; the message says what is kept."""


def quantize(
    model: Path, out: Path, settings: Settings, text: Path | None, console: Console
) -> Job:
    """Quantise, and measure the perplexity if there is a text; returns the finished job.

    Raises:
        ConfigError, DeviceError: an HK environment variable has a value that is not valid here.
        QuantizeError: see `Job` and `perplexity.measure`; or there is no perplexity to measure.
        Interrupted: the user pressed Ctrl-C.
    """
    # the CPU computes, even if HK_DEVICE names a GPU for serving
    kind, _, instruction_set = get_config().device.partition(":")
    with always(cpu_device(instruction_set if kind == "cpu" else "")):
        return _quantize(model, out, settings, text, console)


def _quantize(
    model: Path, out: Path, settings: Settings, text: Path | None, console: Console
) -> Job:
    job = Job(model, out, settings)
    if text is not None and not job.source.has_head:
        headless = f"{model} has no LM head, so --text measures no perplexity"
        if settings.calibration is None:
            raise QuantizeError(f"{headless}; leave it out")
        console.print(f"{headless}: it is only calibrated on", soft_wrap=True, markup=False)
        text = None
    if text is not None:
        from hk_backend.quantize.text import read_text

        # report an unreadable text now, not after an hour
        read_text(text, model, job.source.vocabulary)
    if job.recipe.caution and job.activations != "none":
        console.print(f"[yellow]{job.recipe.caution}[/yellow]", soft_wrap=True)
    try:
        with job.held(), _progress(console) as bar:  # errors come before the bar
            task = bar.add_task("", total=job.work_bytes)
            job.write(lambda name, count: bar.update(task, advance=count, description=name))
        if text is not None:
            _measure(job, text, console)
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted, {job.kept()}; run the same command.") from None
    return job


def _measure(job: Job, text: Path, console: Console) -> None:
    from hk_backend.quantize.perplexity import measure

    with _progress(console) as bar:
        task = bar.add_task("loading the model")
        measure(
            job,
            text,
            lambda what, done, total: bar.update(
                task, completed=done, total=total, description=f"perplexity {what}"
            ),
        )


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    """Show progress: a bar on a terminal; in a pipe or a log, a line every half minute."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,  # the bar vanishes before an error or the report
        disable=not console.is_terminal,
    )

    def line() -> str:
        return "; ".join(f"{each.description} {each.percentage:.0f}%" for each in bar.tasks)

    with bar, nullcontext() if console.is_terminal else pulse(console, line, SECONDS):
        yield bar
