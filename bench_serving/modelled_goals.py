"""HK's GPU kernels beside their own goals, for `kernels --modelled`; nobody publishes such figures.

Three tables: variants of attention beside the plain kernel, steps whose keys workgroups share
beside the same steps unshared, and linear layers beside the time that is their goal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

from bench_serving.modelled import ARCH, compute_units
from hk_backend import _emulator
from hk_backend.kernels.catalogue import Catalogue, Family, NoKernel
from hk_backend.kernels.entry import Fact
from hk_backend.kernels.gemm_operands import LAYERS, Operands, family
from hk_backend.kernels.masks import ALIBI, CAPPED, NO_MASK, WINDOW
from hk_backend.lab import tables
from hk_backend.lab.bench.attention import explain
from hk_backend.lab.bench.gemm.layers import MODELS, Layer, weights
from hk_backend.lab.bench.gemm.timers import Clock, Problem
from hk_backend.lab.timing import family as families
from hk_backend.lab.timing.calibration import statement
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.model import time
from hk_backend.lab.timing.workloads.attention_prefill.shape import Shape, batch
from hk_backend.measurements.launches import Launches

WORD = "goals"
"""Word of `--cases` that selects these tables."""
MARKS = (
    "<!-- modelled goals: written by `make modelled` -->\n",
    "<!-- end of modelled goals -->\n",
)
HEAD_SIZES = (64, 128, 256)

PROMPTS, LONG = batch(16, 4096, 64, 8, True), batch(4, 8192, 64, 8, True)


class Way(NamedTuple):
    """Kernels of attention by the catalogue's facts, and what they compute."""

    mask: str
    shape: Shape
    keys: str = "paged"
    stored: str = "bf16"


class Variant(NamedTuple):
    """A way whose time is given as a multiple of another one's. `goal`: most, where there is one.

    `head_sizes`: those whose kernels have both.
    """

    name: str
    way: Way
    beside: Way
    head_sizes: Sequence[int] = HEAD_SIZES
    goal: float | None = None


def _windowed(shape: Shape) -> Shape:
    return replace(shape, window=1024)


PLAIN = Way(NO_MASK, PROMPTS)
IN_WINDOW = Way(WINDOW, _windowed(PROMPTS))
TOKENS = PLAIN._replace(keys="tokens")
OF_LONG = Way(NO_MASK, LONG)
VARIANTS = (
    Variant("soft cap", PLAIN._replace(mask=CAPPED), PLAIN),
    Variant(
        "soft cap, FP8 cache", PLAIN._replace(mask=CAPPED, stored="e4m3"),
        PLAIN._replace(stored="e4m3"), (128,),
    ),
    Variant("soft cap in a window of 1024", IN_WINDOW._replace(mask=CAPPED), IN_WINDOW, (64, 128)),
    Variant("soft cap, pages of one token", TOKENS._replace(mask=CAPPED), TOKENS, (64, 128)),
    Variant("ALiBi", PLAIN._replace(mask=ALIBI), PLAIN, (64, 128)),
    Variant("ALiBi in a window of 1024", IN_WINDOW._replace(mask=ALIBI), IN_WINDOW, (64, 128)),
    Variant("ALiBi, pages of one token", TOKENS._replace(mask=ALIBI), TOKENS, (64, 128)),
    Variant("sinks", PLAIN._replace(mask=WINDOW), PLAIN, goal=1.02),
    Variant("sinks, 4 requests of 8192", OF_LONG._replace(mask=WINDOW), OF_LONG, goal=1.02),
    Variant("a window of 1024, 4 requests of 8192", Way(WINDOW, _windowed(LONG)), OF_LONG,
            goal=0.36),
    Variant(
        "the same, pages of any size", Way(WINDOW, _windowed(LONG), "any_pages"),
        OF_LONG._replace(keys="any_pages"), (64, 128), 0.36,
    ),
)  # fmt: skip
"""Sixteen requests of 4096 tokens in pages of 16 unless their name says something else."""


class Step(NamedTuple):
    """A step of attention whose keys the planner may split. `goal`: microseconds, or None."""

    name: str
    shape: Shape
    head_size: int = 128
    goal: float | None = None


LATE, LAST = Shape([200], [8200], 8, 1), Shape([20], [8020], 8, 1)
STEPS = (
    Step("200 tokens over 8,200 keys, heads 8/1", LATE, goal=20),
    Step("the same, d=256", LATE, 256),
    Step("20 tokens over 8,020 keys, heads 8/1", LAST),
    Step("the same, d=256", LAST, 256),
    *(
        Step(f"{requests} x {tokens} fresh tokens", batch(requests, tokens, 32, 8, True))
        for requests, tokens in ((1, 128), (1, 1024), (1, 2048), (4, 512), (8, 1024))
    ),
)
"""Heads 32/8 and d=128 unless the name says something else."""

SAID = (
    f"Attention: {statement('attention_prefill')}. Layers: {statement('gemm')}. "
    "The error of ratios is unknown."
)
"""Note above the tables."""
FORMATS = (
    *("bf16", "fp8_channel", "fp8_block"),
    *("mxfp4", "mxfp4_mxfp6_e2m3", "mxfp6_e2m3", "mxfp8", "mxfp4_weight_only"),
)
ROWS = (1, 16, 64, 256, 512, 1024, 2048, 8192)
LAUNCH_US, RATE_SHARE, BYTES_PER_US = 4.0, 0.75, 5.85e6
"""A layer's goal: microseconds of a launch, share of the rate at 8192^3, bytes of HBM per us."""


def model(kernels: Catalogue, workers: int, out: Path, tell: Callable[[str], object]) -> str:
    """Models all tables, writes `modelled_goals.md` into `out`, and returns its Markdown.

    `workers` threads model launches; `tell` is given each figure. Raises `RuntimeError` if the
    emulator cannot execute a kernel to its end.
    """
    with ThreadPoolExecutor(workers) as pool:
        tables_of = (_variants, _steps, _layers)
        found = [of(kernels, pool, tell) for of in tables_of]
    text = "\n".join((f"{SAID}\n", *found)).strip()
    out.mkdir(parents=True, exist_ok=True)
    (out / "modelled_goals.md").write_text(f"{text}\n")
    return text


def kernels_of(kernels: Catalogue, head_size: int, way: Way) -> Family | NoKernel:
    """The kernels that compute a way."""
    facts: dict[str, Fact] = {
        "mask": way.mask,
        "keys": way.keys,
        "stored": way.stored,
        "padded": False,
    }
    return kernels.alternatives("attention_prefill", dtype="bf16", head_size=head_size, **facts)


def _time(kernels: Catalogue, head_size: int, way: Way) -> float:
    """Microseconds of the launch that serves a way."""
    found = kernels_of(kernels, head_size, way)
    assert not isinstance(found, NoKernel), f"no kernel with {found.fact} {found.value}"
    _, launch = families.serving(found, way.shape, compute_units())
    return float(time(trace(launch, threads=1)).microseconds)


def _variants(kernels: Catalogue, pool: ThreadPoolExecutor, tell: Callable[[str], object]) -> str:
    asked = [(size, way) for each in VARIANTS for size in each.head_sizes for way in each[1:3]]
    keyed = {(size, str(way)): (size, way) for size, way in asked}
    times = dict(zip(keyed, pool.map(lambda of: _time(kernels, *of), keyed.values()), strict=True))
    lines = []
    for each in VARIANTS:
        cells = []
        for size in HEAD_SIZES:
            if size not in each.head_sizes:
                cells.append("")
                continue
            ratio = times[size, str(each.way)] / times[size, str(each.beside)]
            cells.append(_bold(f"{ratio:.3g}", each.goal is not None and ratio > each.goal))
        lines.append([each.name, *cells, "" if each.goal is None else f"{each.goal}"])
        tell(f"{each.name}: {', '.join(filter(None, cells))}")
    headings = ["time in units of the plain kernel's", *(f"d={n}" for n in HEAD_SIZES), "goal"]
    return tables.markdown(headings, lines)


def _steps(kernels: Catalogue, pool: ThreadPoolExecutor, tell: Callable[[str], object]) -> str:
    lines = []
    for step, figures in zip(STEPS, pool.map(partial(_shared, kernels), STEPS), strict=True):
        way, planned, whole, largest = figures
        is_missed = step.goal is not None and planned > step.goal
        goal = "" if step.goal is None else f" (goal {step.goal})"
        dealt = f"{way.rows} rows" + (f", {way.parts.number} parts" if way.parts.number > 1 else "")
        cells = [f"{planned:.1f}{goal}", f"{whole:.1f}", f"{largest:.1f}"]
        lines.append([step.name, dealt, _bold(cells[0], is_missed), *cells[1:]])
        tell(f"{step.name}: {', '.join(cells)}")
    headings = (
        "microseconds, launches apart", "the plan for a workgroup", "as planned",
        "keys not shared", "the same, 256 rows",
    )  # fmt: skip
    return tables.markdown(headings, lines)


def _shared(kernels: Catalogue, step: Step) -> tuple[explain.Choice, float, float, float]:
    """The planned way and its microseconds; those of the best and of the largest unsplit tiles."""
    shape, head_size = step.shape, step.head_size
    every = explain.ways(kernels, shape, head_size, compute_units())
    unsplit = [way for way in every if way.parts.number == 1]
    best = min(unsplit, key=lambda way: way.microseconds)
    largest = max(unsplit, key=lambda way: way.rows)

    def apart(way: explain.Choice) -> float:
        launches = 1 + (way.parts.number > 1)
        return explain.microseconds(kernels, shape, head_size, way) - launches * _gap()

    return every[0], apart(every[0]), apart(best), apart(largest)


@functools.cache
def _gap() -> float:
    """Microseconds between launches in a stream, by the clock."""
    return float(_emulator.TimingParameters(ARCH)["dependent_gap"])


def _layers(kernels: Catalogue, pool: ThreadPoolExecutor, tell: Callable[[str], object]) -> str:
    timer = Clock(ARCH, 1)
    lines = []
    for format in FORMATS:
        measure = partial(_layer, kernels, timer, format)
        best = 2 * 8192**3 / measure((8192, 8192, 8192))
        every = list(_cases())
        times = pool.map(lambda of, measure=measure: measure(of[1]), every)
        shares = {
            name: time / _goal(LAYERS[format], sizes, best)
            for (name, sizes), time in zip(every, times, strict=True)
        }
        worst = max(shares, key=lambda name: shares[name])
        mean, most = geometric_mean(shares.values()), shares[worst]
        missed = sum(share > 1 for share in shares.values())
        lines.append([
            format, str(len(shares)), _bold(f"{mean:.2f}", mean > 1),
            f"{_bold(f'{most:.2f}', most > 1)} ({worst})", str(missed),
        ])  # fmt: skip
        tell(f"{format}: {mean:.2f}, at most {most:.2f}")
    headings = (
        "layers: time in a stream over the goal",
        "layers",
        "geometric mean",
        "most",
        "above 1",
    )
    return tables.markdown(headings, lines)


def _cases() -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Names and sizes `(m, n, k)` of the layers of Llama 8B and 70B on one GPU and on eight."""
    for name in MODELS:
        for ranks in (1, 8):
            for layer, (n, k) in weights(name, ranks).items():
                for m in ROWS:
                    yield f"{layer}, M={m}", (m, n, k)


def _layer(kernels: Catalogue, timer: Clock, format: str, sizes: tuple[int, int, int]) -> float:
    """Microseconds of the launch that the planner chooses, in a stream."""
    m, n, k = sizes
    of = LAYERS[format]
    layer = Layer(format, n, k, family(kernels, of), timer.compute_units, Launches())
    choice = layer.launch(m)
    return timer.microseconds(choice.entry, choice.splits, Problem(of, m, n, k))


def _goal(of: Operands, sizes: tuple[int, int, int], best: float) -> float:
    """Microseconds that are the goal; `best`: FLOPs per microsecond at 8192^3."""
    m, n, k = sizes
    of_a, of_b = of.bits
    moved = (of_a * m + of_b * n) * k / 8 + 2 * m * n
    return LAUNCH_US + max(2 * m * n * k / (RATE_SHARE * best), moved / BYTES_PER_US)


def _bold(text: str, is_missed: bool) -> str:
    return f"**{text}**" if is_missed else text
