"""Sums up products of projections' inputs while a text runs through the model."""

from __future__ import annotations

import torch

from hk_backend.quantize.served import Serving

COLUMNS = 1024
"""Number of columns of the inputs whose products are summed up at once.

Most products below the diagonal are left out, as the sum is symmetric.
"""


class Inputs:
    """The input that some projections share, rotated and rounded, and the sum of its products.

    Each input is rotated, rounded and summed up once for all of the projections.
    """

    def __init__(self, k: int, serving: Serving) -> None:
        self._serving = serving
        self._products = torch.zeros(k, k)
        self._rows = 0
        self._last: tuple[torch.Tensor, torch.Tensor] | None = None

    def multiplied(self, x: torch.Tensor) -> torch.Tensor:
        """The input `x` `[..., k]` rotated and rounded as in serving, float32.

        Its products are summed up once, however many projections ask.
        """
        if self._last is None or self._last[0] is not x:
            self._last = x, self._serving.multiplied(x)
            self.add(self._last[1].flatten(0, -2))
        return self._last[1]

    def add(self, rows: torch.Tensor) -> None:
        """Add the products of `rows` `[rows, k]` to the sum."""
        for first in range(0, rows.shape[1], COLUMNS):
            last = first + COLUMNS
            self._products[first:last, first:].addmm_(rows[:, first:last].T, rows[:, first:])
        self._rows += len(rows)

    def hessian(self) -> torch.Tensor:
        """The Hessian 2 X^T X / rows, `[k, k]`, float32; see `hk_backend.quantize.gptq`."""
        above = self._products.triu()
        return (above + above.triu(1).T) * (2.0 / self._rows)


class Observed(torch.nn.Module):
    """A projection that is not quantised yet, with its input rounded as in serving.

    `target`, `bias`: the weight to be rounded, and the bias. `inputs`: sums up the products of its
    inputs, perhaps for other projections, too.
    """

    def __init__(self, target: torch.Tensor, bias: torch.Tensor | None, inputs: Inputs) -> None:
        super().__init__()
        self.target = target
        self.bias = bias
        self.inputs = inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(self.inputs.multiplied(x), self.target, self.bias)
