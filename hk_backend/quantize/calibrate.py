"""GPTQ of a whole model, one decoder layer after the other.

Each projection is calibrated on what the quantised projections before it make of the text, which
runs through the model once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from hk_backend.quantize.gptq import Compensated
from hk_backend.quantize.method import Method
from hk_backend.quantize.observed import Observed, Sharing
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

    For each layer call `quantize`, or `go_on` if its codes exist already.
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
        """Quantise the projections `names` of the next layer, and run the text through it.

        The inputs of each are those that the quantised projections before it give.

        Raises:
            QuantizeError: a weight or a result of the layer is not finite.
        """
        layer = self._stream.load(self._next)
        shared: dict[str, Sharing] = {}
        for name in names:
            first = SAME_INPUT.get(name, name)
            sharing = shared.setdefault(
                first, Sharing(self._serving_of(name), self._stream.together)
            )
            linear: Any = layer.get_submodule(name)
            full = f"model.layers.{self._next}.{name}"
            sharing.targets[full] = self._method.target(linear.weight, full)
            sharing.biases[full] = linear.bias
            layer.set_submodule(name, Observed(full, sharing))
        self._advance(layer)
        found = {name: result for each in shared.values() for name, result in each.found.items()}
        return {name: found[f"model.layers.{self._next - 1}.{name}"] for name in names}

    def go_on(self, weights: dict[str, list[torch.Tensor]]) -> None:
        """Run the text through the next layer, whose quantised projections are `weights`."""
        layer = self._stream.load(self._next)
        for name, (codes, scales) in weights.items():
            linear: Any = layer.get_submodule(name)
            layer.set_submodule(name, self._serving_of(name).layer(codes, scales, linear.bias))
        if self._next < self.layers - 1:
            self._advance(layer)

    def _advance(self, layer: torch.nn.Module) -> None:
        """Run the text through the next layer, which becomes the last one."""
        self._stream.hidden = self._stream.forward(self._next, layer)
        self._next += 1

    def _serving_of(self, name: str) -> Serving:
        return replace(self._serving, rotation=self._method.while_serving(name))
