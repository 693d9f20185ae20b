"""What a projection multiplies its weight with while a text runs through the model."""

from __future__ import annotations

import torch

from hk_backend.quantize.served import Serving

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
