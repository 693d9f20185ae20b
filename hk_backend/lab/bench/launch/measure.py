"""Times the cost of a launch: a layer's forward against an operator that does nothing.

The forward runs from the engine's call of the plugin to `hipModuleLaunchKernel`. It includes the
plan's checks, the counters and the random draw of HK_CHECK, but not a layer's first call, which
checks everything. The empty operator is registered like the public one and takes the same
arguments. Both plugins call linear layers in the same way (linear.py).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.table import Table

from hk_backend.devices import always
from hk_backend.lab.bench.launch import linear, nothing
from hk_backend.lab.bench.stopwatch import alternate
from hk_backend.ops.schema import Schema
from hk_backend.routing import metrics
from hk_backend.terms.attention_arguments import AttentionArguments

LAYERS = 16
"""Number of layers of a step, each with its own tensors, as in a model."""
NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE, DTYPE = 32, 8, 128, torch.bfloat16
PREFILL = ((512, 0), (384, 0), (128, 0))
"""Requests of a prefill step: query tokens and cached tokens of each."""
DECODE = ((1, 700),) * 8
STEPS = {
    "prefill": (PREFILL, 1),
    "prefill with cached tokens": (((512, 256), (384, 0), (128, 1024)), 1),
    "mixed with decode": ((*DECODE, *PREFILL), 2),
    "decode": (DECODE, 1),
}
"""Requests of each attention step, and HK's launches of a layer in it, by its name."""
EITHER = "either"
"""Name in place of the engine's for steps that both engines run alike."""


@dataclass(frozen=True)
class LayerShape:
    """Sizes of the attention layers that a plugin's probe makes."""

    num_heads: int = NUM_HEADS
    num_kv_heads: int = NUM_KV_HEADS
    head_size: int = HEAD_SIZE
    dtype: torch.dtype = DTYPE


class Probe(Protocol):
    """The module `attention.probe` of a plugin."""

    def layers(
        self, rows: tuple[tuple[int, int], ...], shape: LayerShape, count: int
    ) -> list[Callable[[], object]]:
        """Forward calls of `count` layers in a step of `rows`; the parent computes nothing."""


@dataclass(frozen=True)
class LaunchOverhead:
    """The result of one step of one engine. Times are medians, in microseconds."""

    engine: str
    step: str
    us_per_layer: float = 0.0
    us_empty_operator: float = 0.0
    launches_per_layer: int = 0
    error: str = ""

    @property
    def ratio(self) -> float:
        return self.us_per_layer / self.us_empty_operator if self.us_empty_operator else 0.0

    @property
    def us_more_per_launch(self) -> float:
        """Microseconds per launch beyond those of the empty operator."""
        return (self.us_per_layer - self.us_empty_operator) / max(self.launches_per_layer, 1)

    def as_json(self) -> dict[str, Any]:
        more = self.us_more_per_launch
        return {**vars(self), "ratio": self.ratio, "us_more_per_launch": more}


def print_rows(console: Console, rows: Sequence[LaunchOverhead]) -> None:
    """Print the table of `hk-backend bench launch`."""
    figures = ("us per layer", "us empty operator", "ratio", "us more per launch")
    table = Table("engine", "step", *figures, "error")
    for row in rows:
        numbers = (row.us_per_layer, row.us_empty_operator, row.ratio, row.us_more_per_launch)
        table.add_row(row.engine, row.step, *(f"{number:.2f}" for number in numbers), row.error)
    console.print(table)


@dataclass(frozen=True)
class OverheadSweep:
    """The benchmark: steps of the `engines`' attention layers, and of linear layers."""

    engines: tuple[str, ...]
    rounds: int

    def run(self, on_case: Callable[[str], object]) -> Iterator[LaunchOverhead]:
        steps = [
            (engine, step, partial(_attention, engine, step))
            for engine in self.engines
            for step in STEPS
        ]
        steps += [(EITHER, step, partial(_linear, step)) for step in linear.STEPS]
        for engine, step, probed in steps:
            on_case(f"{engine}: {step}")
            try:
                yield measure(engine, step, probed, self.rounds)
            except Exception as error:  # an error of one engine must not hide the other's results
                yield LaunchOverhead(engine, step, error=f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class Probed:
    """Forward calls of `LAYERS` layers, launches of each, and a call of the empty operator."""

    forwards: list[Callable[[], object]]
    launches: int
    empty: Callable[[], object]


def _attention(engine: str, step: str) -> Probed:
    """The attention layers of the plugin hk_<engine> in a step."""
    probe: Probe = importlib.import_module(f"hk_{engine}.attention.probe")
    rows, launches = STEPS[step]
    return Probed(probe.layers(rows, LayerShape(), LAYERS), launches, empty_operator(rows))


def _linear(step: str) -> Probed:
    of = linear.STEPS[step]
    return Probed(linear.layers(of, LAYERS), of.launches, linear.empty_operator(of))


def measure(engine: str, step: str, probed: Callable[[], Probed], rounds: int) -> LaunchOverhead:
    """Time one step in alternation with the empty operator."""
    device, library = nothing.nothing_device()
    metrics.share()  # in an engine, counters are kept in files, too
    with always(device), torch.inference_mode():
        found = probed()
        run_all(found.forwards)  # a layer's first use
        before = library.launch_calls()
        run_all(found.forwards)
        launches = library.launch_calls() - before
        if launches != LAYERS * found.launches:
            raise RuntimeError(
                f"{launches} launches of {LAYERS} layers: HK left some to the engine"
            )
        # this thread's CPU time, which excludes other processes
        times = alternate(
            {"forward": lambda: run_all(found.forwards), "empty": found.empty},
            rounds,
            time.thread_time,
        )
    return LaunchOverhead(
        engine,
        step,
        us_per_layer=times["forward"].median / LAYERS * 1e6,
        us_empty_operator=times["empty"].median * 1e6,
        launches_per_layer=found.launches,
    )


def run_all(forwards: list[Callable[[], object]]) -> None:
    for forward in forwards:
        forward()


def empty_operator(rows: tuple[tuple[int, int], ...]) -> Callable[[], object]:
    """A call with `attention_prefill`'s arguments to an operator that does nothing."""
    schema = Schema(AttentionArguments)
    tokens = sum(query for query, _ in rows)
    query = torch.zeros(tokens, NUM_HEADS, HEAD_SIZE, dtype=DTYPE)
    key = torch.zeros(tokens, NUM_KV_HEADS, HEAD_SIZE, dtype=DTYPE)
    starts = torch.zeros(len(rows) + 1, dtype=torch.int32)
    flat = schema.flatten(
        AttentionArguments(
            query=query, key=key, value=key, query_start_loc=starts, scale=0.1, out=query.clone()
        )
    )
    return partial(nothing.empty_operator(schema.text, _no_shape), *flat)


def _no_shape(*arguments: object) -> None:
    """Return nothing: the operator writes to its arguments."""
