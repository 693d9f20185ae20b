"""The cost of a launch: a layer's forward against an operator that does nothing.

The forward is that of an engine's plugin, from the engine's call to `hipModuleLaunchKernel`: the
plan's checks, the counters and the draw of HK_CHECK are in it; a layer's first call, which checks
everything, is not. The operator is registered as the public one is and takes the same arguments.
Both plugins call linear layers alike (linear.py).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import torch

from hk_backend.bench.launch import linear
from hk_backend.bench.launch.nothing import nothing_device
from hk_backend.bench.timing import alternate
from hk_backend.devices import always
from hk_backend.ops.schema import Schema
from hk_backend.routing import metrics
from hk_backend.terms.attention_arguments import AttentionArguments

LAYERS = 16
"""Of a step: each has its own tensors, as in a model."""
NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE, DTYPE = 32, 8, 128, torch.bfloat16
PREFILL = ((512, 0), (384, 0), (128, 0))
"""Rows of a step: query tokens, cached tokens."""
STEPS = {
    "prefill": PREFILL,
    "prefill with cached tokens": ((512, 256), (384, 0), (128, 1024)),
    "mixed with decode": (*[(1, 700)] * 8, *PREFILL),
}
"""Mixed: the parent's part, which does nothing here, is called too."""
EITHER = "either"
"""Engine."""


@dataclass(frozen=True)
class LayerShape:
    """What a plugin makes its layers of."""

    num_heads: int = NUM_HEADS
    num_kv_heads: int = NUM_KV_HEADS
    head_size: int = HEAD_SIZE
    dtype: torch.dtype = DTYPE


class Probe(Protocol):
    """A plugin's `attention.probe`."""

    def layers(
        self, rows: tuple[tuple[int, int], ...], shape: LayerShape, count: int
    ) -> list[Callable[[], object]]:
        """The forwards of `count` layers in a step of `rows`, their engine's parent computing
        nothing."""


@dataclass(frozen=True)
class Row:
    """One step of one engine. Times are medians, in microseconds."""

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
        """Than the empty operator."""
        return (self.us_per_layer - self.us_empty_operator) / max(self.launches_per_layer, 1)

    def as_json(self) -> dict[str, Any]:
        more = self.us_more_per_launch
        return {**vars(self), "ratio": self.ratio, "us_more_per_launch": more}


@dataclass(frozen=True)
class Launches:
    """The steps of the engines that are installed, and of linear layers."""

    engines: tuple[str, ...]
    rounds: int

    def run(self, say: Callable[[str], None]) -> Iterator[Row]:
        steps = [
            (engine, step, partial(_attention, engine, step))
            for engine in self.engines
            for step in STEPS
        ]
        steps += [(EITHER, step, partial(_linear, step)) for step in linear.STEPS]
        for engine, step, probed in steps:
            say(f"{engine}: {step}")
            try:
                yield measure(engine, step, probed, self.rounds)
            except Exception as error:  # one engine's must not hide the other's
                yield Row(engine, step, error=f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class Probed:
    """The forwards of `LAYERS` layers, the launches of each, and the operator beside them."""

    forwards: list[Callable[[], object]]
    launches: int
    empty: Callable[[], object]


def _attention(engine: str, step: str) -> Probed:
    """Of the plugin hk_<engine>."""
    probe: Probe = importlib.import_module(f"hk_{engine}.attention.probe")
    rows = STEPS[step]
    return Probed(probe.layers(rows, LayerShape(), LAYERS), 1, empty_operator(rows))


def _linear(step: str) -> Probed:
    of = linear.STEPS[step]
    return Probed(linear.layers(of, LAYERS), of.launches, linear.empty_operator(of))


def measure(engine: str, step: str, probed: Callable[[], Probed], rounds: int) -> Row:
    """Time one step beside the empty operator."""
    device, library = nothing_device()
    metrics.share()  # as in an engine, whose counters are also kept in files
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
        # the thread's own time: other processes of the machine take none of it
        times = alternate(
            {"forward": lambda: run_all(found.forwards), "empty": found.empty},
            rounds,
            time.thread_time,
        )
    return Row(
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
    """A call of an operator with the arguments of `attention_prefill` that does nothing."""
    schema, operator = _empty()
    tokens = sum(query for query, _ in rows)
    query = torch.zeros(tokens, NUM_HEADS, HEAD_SIZE, dtype=DTYPE)
    key = torch.zeros(tokens, NUM_KV_HEADS, HEAD_SIZE, dtype=DTYPE)
    starts = torch.zeros(len(rows) + 1, dtype=torch.int32)
    flat = schema.flatten(
        AttentionArguments(
            query=query, key=key, value=key, query_start_loc=starts, scale=0.1, out=query.clone()
        )
    )
    return lambda: operator(*flat)


_libraries: list[torch.library.Library] = []
"""Their operators live as long as they do."""


@cache
def _empty() -> tuple[Schema[AttentionArguments], Callable[..., None]]:
    schema = Schema(AttentionArguments)
    library = torch.library.Library("hk_bench", "DEF")
    _libraries.append(library)
    library.define(schema.text)
    name = schema.text.partition("(")[0]
    library.impl(name, lambda *arguments: None, "CPU")
    operator: Callable[..., None] = getattr(torch.ops.hk_bench, name)
    return schema, operator
