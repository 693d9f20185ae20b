"""Short tables of the comparison with stock for a document: rates, ratios, and every loss."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence

from hk_backend.lab import tables
from hk_backend.lab.stock.batches import Batch
from hk_backend.lab.stock.cases import DECODED
from hk_backend.lab.stock.comparison import RATIO, Compared, Side
from hk_backend.lab.stock.layers import MX, Layer

APART = "vLLM MX"
"""Products of MX beside vLLM's, which has so many other rows."""
BESIDE = {"Triton": "vLLM"}
"""Engines beside which kernels of no engine are run."""
DECODE = "decode"
"""Word after an engine's name: its steps that decode, a part of their own."""
MARKS = {
    part: (
        f"<!-- stock {part}: written by `hk-backend bench gpu --against stock --into` -->\n",
        f"<!-- end of stock {part} -->\n",
    )
    for part in (
        *("vLLM", f"vLLM {DECODE}", APART, "SGLang", f"SGLang {DECODE}"),
        *("fbtriton", "FlyDSL", "AITER"),
    )
}
"""Lines of the document before and after each part."""


def parts_of(rows: Iterable[Compared]) -> dict[str, list[Compared]]:
    """The rows by the part of the document that they belong to."""
    parts: dict[str, list[Compared]] = {}
    for row in rows:
        engine = BESIDE.get(row.stock.split()[0], row.stock.split()[0])
        of_mx = isinstance(row.case.of, Layer) and row.case.of.format in MX
        part = APART if engine == "vLLM" and of_mx else engine
        if _decodes(row):
            part = f"{engine} {DECODE}"
        parts.setdefault(part, []).append(row)
    return parts


def text_of(rows: Sequence[Compared]) -> str:
    """Markdown: how many rows win and lose, every loss, rates of attention, ratios of products."""
    right = [row for row in rows if not math.isnan(row.ratios[RATIO])]
    behind = [row for row in right if row.ratios[RATIO] < 1]
    losses = [
        f"{row.case.name}, {row.stock}: {_times(row) + ' us' if _decodes(row) else _cell(row)}"
        for row in behind
    ]
    without = dict.fromkeys(_without_ratio(row) for row in rows if math.isnan(row.ratios[RATIO]))
    said = f"{len(right) - len(losses)} rows ahead, {len(losses)} behind."
    said += f" Losses: {'; '.join(losses) or 'none'}."
    if without:
        said += f" Without a ratio: {'; '.join(without)}."
    parts = [said, _attention(rows), _decode(rows), _linear(right)]
    return "\n\n".join(part.strip() for part in parts if part)


def _without_ratio(row: Compared) -> str:
    name = row.case.name.rpartition(" ")[0]
    why = row.error or row.finding or row.elsewhere
    if why:
        return f"{name}, {row.stock}: {why.split(';')[0]}"
    if row.kept:
        return f"{name}: left to stock, {row.kept}"
    assert row.theirs is not None
    return f"{name}, {row.stock}: stock's error is {row.theirs.error:.1f} times what bf16 allows"


def _attention(rows: Sequence[Compared]) -> str:
    """One line for each model and kernel, one column for each batch."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if isinstance(row.case.of, Batch) and row.theirs and not _decodes(row):
            model, _, batch = row.case.name.rpartition(" ")
            lines.setdefault((model, row.stock), {})[batch] = _cell(row)
    batches = sorted({batch for line in lines.values() for batch in line}, key=_by_size)
    if not lines:
        return ""
    headings = ["attention, modelled TFLOP/s: HK / stock = ratio", "stock", *batches]
    return tables.markdown(
        headings,
        ([*key, *(line.get(batch, "") for batch in batches)] for key, line in lines.items()),
    )


def _decodes(row: Compared) -> bool:
    return isinstance(row.case.of, Batch) and row.case.of.is_decode


def _decode(rows: Sequence[Compared]) -> str:
    """One line for each model and kernel, one column for each number of requests and keys."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if _decodes(row) and row.theirs:
            model, _, batch = row.case.name.split()
            lines.setdefault((model, row.stock), {})[batch] = _times(row)
    if not lines:
        return ""
    steps = [batch for batch in DECODED if any(batch in line for line in lines.values())]
    return tables.markdown(
        ["decode, modelled us: HK / stock, the ratio of speeds", "stock", *steps],
        ([*key, *(line.get(batch, "") for batch in steps)] for key, line in lines.items()),
    )


def _by_size(name: str) -> tuple[int, str]:
    """Order of columns: by the number in their names; those without one come last."""
    digits = "".join(filter(str.isdigit, name))
    return (int(digits) if digits else sys.maxsize, name)


def _cell(row: Compared) -> str:
    """Both rates in TFLOP/s, and their ratio; a loss is bold."""
    if row.theirs is None:
        return tables.FAILED
    flops = row.case.of.flops
    return _beside(row, lambda side: tables.rate(flops / side.microseconds / 1e6), " = ")


def _times(row: Compared) -> str:
    """Both times in microseconds, and how often HK's goes into stock's; a loss is bold."""
    return _beside(row, lambda side: f"{side.microseconds:.1f}", ", ")


def _beside(row: Compared, text_of: Callable[[Side], str], then: str) -> str:
    """A figure of both sides, and their ratio if there is one."""
    ours, theirs = (text_of(side) if side else "-" for side in (row.ours, row.theirs))
    ratio = row.ratios[RATIO]
    return f"{ours} / {theirs}" + ("" if math.isnan(ratio) else f"{then}{_bold(ratio)}")


def _bold(ratio: float) -> str:
    return f"**{ratio:.2f}**" if ratio < 1 else f"{ratio:.2f}"


def _linear(rows: Sequence[Compared]) -> str:
    """One line for each format, with the range of ratios over all layers for each row count."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        if not isinstance(row.case.of, Batch):
            of = found.setdefault((row.case.of.format, row.stock), {})
            of.setdefault(f"M={row.case.of.m}", []).append(row.ratios[RATIO])
    counts = sorted({count for line in found.values() for count in line}, key=_by_size)
    if not found:
        return ""
    return tables.markdown(
        ["linear layers, ratio of modelled times", "stock", *counts],
        ([*key, *(_range(line.get(count, ())) for count in counts)] for key, line in found.items()),
    )


def _range(ratios: Iterable[float]) -> str:
    known = sorted(ratios)
    return " to ".join(dict.fromkeys((_bold(known[0]), _bold(known[-1])))) if known else ""
