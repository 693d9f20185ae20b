"""Sums up what projections multiply their weights with while a text runs through the model."""

from __future__ import annotations

import torch

from hk_backend.quantize.served import Serving

COLUMNS = 1024
"""Of the products of inputs that are summed up at once, without most of what lies below the
diagonal."""


class Inputs:
    """The input that projections share, as they multiply it, and the sum of its products.

    Each input is rotated, rounded and summed up once, for all of the projections.
    """

    def __init__(self, k: int, serving: Serving) -> None:
        self._serving = serving
        self._products = torch.zeros(k, k)
        self._rows = 0
        self._last: tuple[torch.Tensor, torch.Tensor] | None = None

    def multiplied(self, x: torch.Tensor) -> torch.Tensor:
        """The input `x` `[..., k]` rotated and rounded as served, float32; summed up once."""
        if self._last is None or self._last[0] is not x:
            self._last = x, self._serving.multiplied(x)
            self.add(self._last[1].flatten(0, -2))
        return self._last[1]

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

    `target`, `bias`: what it will compute, but for rounding. `inputs`: what sums its inputs up,
    perhaps also for other projections.
    """

    def __init__(self, target: torch.Tensor, bias: torch.Tensor | None, inputs: Inputs) -> None:
        super().__init__()
        self.target = target
        self.bias = bias
        self.inputs = inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(self.inputs.multiplied(x), self.target, self.bias)
