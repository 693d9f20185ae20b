"""`hk-backend quantize`, beneath its options: a job with its progress on standard error."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from hk_backend.quantize.job import Job, Settings


def quantize(
    model: Path, out: Path, settings: Settings, text: Path | None, console: Console
) -> Job:
    """Quantise, and measure the perplexity if there is a text; the finished job.

    Raises:
        QuantizeError: see `Job` and `perplexity.measure`.
    """
    if text is not None:
        from hk_backend.quantize.perplexity import measure, read_text

        read_text(text, model)  # a text that cannot be read is told now, not after an hour
    job = Job(model, out, settings)
    with _progress(console) as bar:
        task = bar.add_task("", total=job.source_bytes)
        job.run(lambda name, count: bar.update(task, advance=count, description=name))
        bar.update(task, description=f"quantised to {out}")
        if text is None:
            return job
        task = bar.add_task("loading the model")
        measure(
            job,
            text,
            lambda what, done, total: bar.update(
                task, completed=done, total=total, description=f"perplexity {what}"
            ),
        )
    return job


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
    )
