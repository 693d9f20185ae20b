"""GPTQ of a whole model: each decoder layer on what those before it, quantised already, make of the
calibration text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from hk_backend.quantize.gptq import compensated
from hk_backend.quantize.method import Method
from hk_backend.quantize.served import Serving
from hk_backend.quantize.source import MERGED, Source
from hk_backend.quantize.stream import Stream
from hk_backend.quantize.values import encode, factors

TOKENS = 16 << 10
"""Of the text's beginning, but not more than half of it."""
SAME_INPUT = {name: merged[0] for merged in MERGED for name in merged}
"""The first of the projections that share an input."""


def calibration_windows(tokens: list[int], length: int) -> torch.Tensor:
    """What is calibrated on: the beginning of a text of two tokens or more in windows of `length`,
    `[count, length]`, or in one that is shorter."""
    most = min(TOKENS, len(tokens) // 2)
    length = min(length, most)
    return torch.tensor(tokens[: most // length * length]).view(-1, length)


@dataclass(frozen=True)
class Compensated:
    """A projection's codes and scales, its relative error as in the report, and the objective of
    rounding to nearest and of these codes."""

    codes: torch.Tensor
    scales: torch.Tensor
    error: float
    objective: tuple[float, float]


class Calibration:
    """Goes through the decoder layers of `source` in order: `quantize` one that is new, then
    `go_on` to the next.

    `layers`, `tokens`: how many there are, the latter in all `windows`.
    """

    def __init__(
        self, source: Source, windows: torch.Tensor, method: Method, serving: Serving
    ) -> None:
        self.tokens = windows.numel()
        self.layers: int = source.config["num_hidden_layers"]
        self._source = source
        self._windows = windows
        self._method = method
        self._serving = serving
        self._next = 0

    @cached_property
    def _stream(self) -> Stream:
        """Begun when it is needed: a finished run only wants to know how much there was."""
        return Stream(self._source, self._windows)

    def quantize(self, names: Iterable[str]) -> dict[str, Compensated]:
        """The projections `names` of the next layer, all on the inputs that the unquantised ones
        give them."""
        layer = self._stream.load(self._next)
        observed: dict[str, Observed] = {}
        for name in names:
            first = observed.get(SAME_INPUT.get(name, name))
            inputs = first.inputs if first else None
            linear: Any = layer.get_submodule(name)
            target = self._method.target(linear.weight, name)
            observed[name] = Observed(target, linear.bias, self._serving_of(name), inputs)
            layer.set_submodule(name, observed[name])
        self._stream.forward(layer)
        return {name: self._compensated(seen) for name, seen in observed.items()}

    def _compensated(self, seen: Observed) -> Compensated:
        recipe, target = self._serving.recipe, seen.target
        scales = recipe.best_scales(target)
        steps = factors(scales, recipe.format, *target.shape)
        moved, *objective = compensated(target, steps, seen.inputs.hessian(), recipe.format)
        codes = encode(moved, recipe.format, scales)
        error = recipe.relative_error(codes, scales, target)
        return Compensated(codes, scales, error, (objective[0], objective[1]))

    def go_on(self, weights: dict[str, list[torch.Tensor]]) -> None:
        """Past the next layer, whose projections have these codes and scales."""
        layer = self._stream.load(self._next)
        for name, (codes, scales) in weights.items():
            linear: Any = layer.get_submodule(name)
            layer.set_submodule(name, self._serving_of(name).layer(codes, scales, linear.bias))
        self._next += 1
        if self._next < self.layers:
            self._stream.hidden = self._stream.forward(layer)

    def _serving_of(self, name: str) -> Serving:
        return replace(self._serving, rotation=self._method.while_serving(name))


COLUMNS = 1024
"""Of the products of inputs that are summed up at once, without most of what lies below the
diagonal."""


class Inputs:
    """Sums up what a layer multiplies its weight with."""

    def __init__(self, k: int) -> None:
        self._products = torch.zeros(k, k)
        self._rows = 0

    def add(self, rows: torch.Tensor) -> None:
        """`[rows, k]`."""
        for first in range(0, rows.shape[1], COLUMNS):
            last = first + COLUMNS
            self._products[first:last, first:].addmm_(rows[:, first:last].T, rows[:, first:])
        self._rows += len(rows)

    def hessian(self) -> torch.Tensor:
        """`[k, k]`, float32; see `hk_backend.quantize.gptq`."""
        above = self._products.triu()
        return (above + above.triu(1).T) * (2.0 / self._rows)


class Observed(torch.nn.Module):
    """A projection that is not quantised yet, though its input is as it will be served.

    `target`, `bias`: what it will compute, but for rounding. `inputs`: those of another with the
    same input, that sums them up for both; None: its own.
    """

    def __init__(
        self,
        target: torch.Tensor,
        bias: torch.Tensor | None,
        serving: Serving,
        inputs: Inputs | None,
    ) -> None:
        super().__init__()
        self.target = target
        self.bias = bias
        self.inputs = inputs or Inputs(self.target.shape[1])
        self._serving = serving
        self._sums_up = inputs is None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        multiplied = self._serving.multiplied(x)
        if self._sums_up:
            self.inputs.add(multiplied.flatten(0, -2))
        return torch.nn.functional.linear(multiplied, self.target, self.bias)
