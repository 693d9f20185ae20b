"""GPTQ of a whole model, one decoder layer after the other.

Each layer is calibrated on the outputs that the quantised layers before it give for the text.
"""

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
"""Number of tokens from the text's beginning to calibrate on, at most half of the text."""
SAME_INPUT = {name: merged[0] for merged in MERGED for name in merged}
"""The first of the projections that share an input, for each of them."""


def calibration_windows(tokens: list[int], length: int) -> torch.Tensor:
    """The tokens to calibrate on, `[count, length]`: the beginning of a text, cut into windows.

    The text has two tokens or more. A short text gives one window shorter than `length`.
    """
    most = min(TOKENS, len(tokens) // 2)
    length = min(length, most)
    return torch.tensor(tokens[: most // length * length]).view(-1, length)


class Calibration:
    """Quantises the decoder layers of `source` in order.

    For each layer call `quantize`, unless its codes exist already, and then `go_on`.
    `layers`: number of decoder layers. `tokens`: number of tokens in all `windows`.
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
        """The model's layers, opened on first use: a finished run only asks for `tokens`."""
        return Stream(self._source, self._windows)

    def quantize(self, names: Iterable[str]) -> dict[str, Compensated]:
        """Quantise the projections `names` of the next layer.

        Their inputs are those that the layer's unquantised projections give them.

        Raises:
            QuantizeError: a weight or a result of the layer is not finite.
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
        """Codes and scales of the projections `names`, which share an input."""
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
        """Run the text through the next layer, whose quantised projections are `weights`."""
        layer = self._stream.load(self._next)
        for name, (codes, scales) in weights.items():
            linear: Any = layer.get_submodule(name)
            layer.set_submodule(name, self._serving_of(name).layer(codes, scales, linear.bias))
        if self._next < self.layers - 1:
            self._stream.hidden = self._stream.forward(self._next, layer)
        self._next += 1

    def _serving_of(self, name: str) -> Serving:
        return replace(self._serving, rotation=self._method.while_serving(name))
