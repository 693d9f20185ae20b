"""GPTQ of a whole model: each decoder layer on what those before it, quantised already, make of the
calibration text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.gptq import Compensated, compensated
from hk_backend.quantize.method import Method
from hk_backend.quantize.observed import Inputs, Observed
from hk_backend.quantize.served import Serving
from hk_backend.quantize.source import MERGED, Source
from hk_backend.quantize.stream import Stream

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
        give them.

        Raises:
            QuantizeError: a weight is not finite, or what the layer computes is not.
        """
        layer = self._stream.load(self._next)
        observed: dict[str, Observed] = {}
        for name in names:
            first = observed.get(SAME_INPUT.get(name, name))
            linear: Any = layer.get_submodule(name)
            target = self._method.target(linear.weight, self._name_of(name))
            inputs = first.inputs if first else Inputs(target.shape[1], self._serving_of(name))
            observed[name] = Observed(target, linear.bias, inputs)
            layer.set_submodule(name, observed[name])
        self._stream.forward(self._next, layer)
        found: dict[str, Compensated] = {}
        for inputs in dict.fromkeys(seen.inputs for seen in observed.values()):
            sharing = [name for name, seen in observed.items() if seen.inputs is inputs]
            found |= zip(sharing, self._compensated(sharing, observed), strict=True)
        return {name: found[name] for name in observed}

    def _compensated(
        self, names: Sequence[str], observed: Mapping[str, Observed]
    ) -> list[Compensated]:
        """The projections `names`, which share an input."""
        hessian = observed[names[0]].inputs.hessian()
        if not hessian.isfinite().all():
            raise QuantizeError(
                f"{self._name_of(names[0])}: its inputs contain NaN or infinity, or exceed "
                "float32, while the calibration text runs through the model; use another method"
            )
        return compensated([observed[name].target for name in names], hessian, self._serving.recipe)

    def _name_of(self, name: str) -> str:
        return f"model.layers.{self._next}.{name}"

    def go_on(self, weights: dict[str, list[torch.Tensor]]) -> None:
        """Past the next layer, whose projections have these codes and scales."""
        layer = self._stream.load(self._next)
        for name, (codes, scales) in weights.items():
            linear: Any = layer.get_submodule(name)
            layer.set_submodule(name, self._serving_of(name).layer(codes, scales, linear.bias))
        if self._next < self.layers - 1:
            self._stream.hidden = self._stream.forward(self._next, layer)
        self._next += 1

    def _serving_of(self, name: str) -> Serving:
        return replace(self._serving, rotation=self._method.while_serving(name))
