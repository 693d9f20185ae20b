"""Projections of a decoder layer that are quantised when the calibration text reaches them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.gptq import Compensated, compensated
from hk_backend.quantize.served import Serving
from hk_backend.quantize.together import Together

COLUMNS = 256
"""Number of columns of the inputs whose products are summed up at once.

Most products below the diagonal are left out, as the sum is symmetric.
"""


class Inputs:
    """The sum of products of an input `[..., k]`, rotated and rounded as in serving."""

    def __init__(self, k: int) -> None:
        self._products = torch.zeros(k, k)
        self._rows = 0

    def add(self, rows: torch.Tensor) -> None:
        """Add the products of `rows` `[rows, k]` to the sum."""
        for first in range(0, rows.shape[1], COLUMNS):
            last = first + COLUMNS
            self._products[first:last, first:].addmm_(rows[:, first:last].T, rows[:, first:])
        self._rows += len(rows)

    def join(self, other: Inputs) -> None:
        """Add another sum."""
        self._products += other._products
        self._rows += other._rows

    def hessian(self) -> torch.Tensor:
        """The Hessian 2 X^T X / rows, `[k, k]`, float32; see `hk_backend.quantize.gptq`."""
        above = self._products.triu()
        return (above + above.triu(1).T) * (2.0 / self._rows)


@dataclass
class Sharing:
    """The projections that share an input, by name; the input quantises all of them at once.

    `serving`: how the input is rotated and rounded. `together`: the threads that run the text, each
    with a part of its windows. `targets`, `biases`: the weights to be rounded, and the biases.
    `found`: the results, and `layers`: the layers that serve them.
    """

    serving: Serving
    together: Together
    targets: dict[str, torch.Tensor] = field(default_factory=dict)
    biases: dict[str, torch.Tensor | None] = field(default_factory=dict)
    found: dict[str, Compensated] = field(default_factory=dict)
    layers: dict[str, torch.nn.Module] = field(default_factory=dict)
    _inputs: dict[int, Inputs] = field(default_factory=dict)

    def quantize(self, x: torch.Tensor) -> None:
        """Quantise all projections once each thread has brought its part `x` of their inputs.

        `x` is `[windows, length, k]`.

        Raises:
            QuantizeError: a product of the inputs is not finite.
        """
        inputs = Inputs(x.shape[-1])
        for window in x:
            inputs.add(self.serving.multiplied(window))
        self._inputs[self.together.part] = inputs
        self.together.once(self._quantize)

    def _quantize(self) -> None:
        # in the order of the parts, whichever thread was first: sums have an order
        inputs, *others = (self._inputs.pop(part) for part in range(self.together.count))
        for other in others:
            inputs.join(other)
        hessian = inputs.hessian()
        if not hessian.isfinite().all():
            raise QuantizeError(
                f"{next(iter(self.targets))}: its inputs contain NaN or infinity, or exceed "
                "float32, while the calibration text runs through the model; use another method"
            )
        results = compensated(list(self.targets.values()), hessian, self.serving.recipe)
        for name, result in zip(self.targets, results, strict=True):
            self.found[name] = result
            parts = result.codes, result.scales, self.biases[name]
            self.layers[name] = self.serving.layer(*parts)


class Observed(torch.nn.Module):
    """A projection that its first inputs quantise, as one of those that share them."""

    def __init__(self, name: str, sharing: Sharing) -> None:
        super().__init__()
        self._name = name
        self._sharing = sharing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self._sharing.found:
            self._sharing.quantize(x)
        served: torch.Tensor = self._sharing.layers[self._name](x)
        return served
