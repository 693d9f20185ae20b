"""The report that `hk-backend quantize` prints: sizes, the worst layers, perplexity."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hk_backend.ops.head_format import KEPT
from hk_backend.quantize.job import Job
from hk_backend.quantize.method import SCALE_RULES
from hk_backend.quantize.output import CALIBRATED, REPORT, SHARDS
from hk_backend.quantize.source import TIED

WORST = 10
"""Number of layers in the printed table; the report file has every layer."""


def print_report(console: Console, job: Job) -> None:
    report = job.out.report
    errors = job.layer_errors()
    columns = ["layer", "error", *(["objective, rtn", "gptq"] if job.calibrated else [])]
    table = Table(*columns, title=f"{job.recipe.name}: relative error of the weights")
    for found in errors[:WORST]:
        objective = [f"{value:.3g}" for value in found.objective or ()]
        table.add_row(found.layer, f"{found.error:.2%}", *objective)
    console.print(table)
    console.print(f"method: {job.method.name}{_rotation(job)}")
    rule = job.method.scale_rule(job.recipe)
    console.print(f"scales: {rule} ({SCALE_RULES[rule]})", soft_wrap=True)
    median = statistics.median(found.error for found in errors)
    where = escape(str(job.out.directory / REPORT))
    console.print(f"{len(errors)} layers, median {median:.2%}, all in {where}")
    if job.head != KEPT:
        also = ", and the embedding, which shares its table" if job.embedding != KEPT else ""
        console.print(f"lm_head: to be served in {job.head}{also}")
    if job.source.has_other_head:
        console.print(
            f"lm_head: differs from the embedding, though the model's config.json has {TIED}: true;"
            " the new one has false",
            soft_wrap=True,
        )
    kept = ["lm_head and the embeddings", *job.source.other_matrices, *job.plan.ignored]
    console.print(f"not quantised: {', '.join(kept)}", soft_wrap=True)
    before, after = report["source_bytes"], report["bytes"]
    console.print(f"{before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB after")
    text = report.get("perplexity")
    if text and "heads" in text:  # else it was interrupted
        console.print(
            f"perplexity {text['before']:.4f} before, {text['after']:.4f} after, over "
            f"{text['tokens']:,} tokens of {escape(text['text'])}{_calibrated(job)}"
        )
        console.print(_heads(text["heads"]))


def _heads(heads: dict[str, Any]) -> Table:
    """Table of what the LM head costs in each format."""
    layers = heads["layers_microseconds"]
    title = f"the LM head; a token takes {layers:,.0f} us in all other layers on this machine"
    table = Table("format", "perplexity", "MB", "us a token", "of the layers'", title=title)
    for name, cost in heads["formats"].items():
        time = cost["microseconds"]
        values = f"{cost['perplexity']:.4f}", f"{cost['bytes'] / 1e6:.1f}", f"{time:,.0f}"
        table.add_row(f"{name} bits" if name == KEPT else name, *values, f"{time / layers:.0%}")
    return table


def _rotation(job: Job) -> str:
    rotation = job.method.rotation
    return f", rotated by {rotation} channels, --fold {job.method.fold}" if rotation else ""


def _calibrated(job: Job) -> str:
    tokens = job.calibrated_tokens
    return f", after the {tokens:,} that it was calibrated on" if tokens else ""


def as_json(job: Job) -> dict[str, Any]:
    """The report file's content, with the layers in one list, worst first."""
    report = {
        name: value
        for name, value in job.out.report.items()
        if name not in (SHARDS, CALIBRATED, "pieces")
    }
    layers = [asdict(found) for found in job.layer_errors()]
    return {**report, "out": str(job.out.directory), "layers": layers}
