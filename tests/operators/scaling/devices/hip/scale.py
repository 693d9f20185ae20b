"""`scale` on a GPU."""

from __future__ import annotations

import torch

from hk_backend.devices.hip.call import KernelCall, Work
from hk_backend.devices.hip.operator import HipOperator, Problem, Usable
from hk_backend.kernels import Catalogue, KernelEntry
from hk_backend.routing.shadow_check import largest_error, tolerance
from hk_backend.terms.verdict import Verdict
from tests.operators.scaling.ops.scale import ScaleArguments, ScaleRequest


class Scale(HipOperator):
    """One kernel."""

    def verdict(self, request: ScaleRequest, kernels: Catalogue, usable: Usable) -> Verdict:
        return usable(self, kernels.families["scale"])

    def prepare(self, arguments: ScaleArguments, kernels: Catalogue) -> KernelCall:
        rows, columns = arguments.x.shape
        sizes = {"rows": rows, "columns": columns}
        numbers = {**sizes, "factor": arguments.factor}
        tensors = {"x": arguments.x, "out": arguments.out}
        return KernelCall(kernels.families["scale"], tensors, numbers, sizes, Work(rows, "rows"))

    def self_check_problem(self, kernel: KernelEntry) -> Problem:
        x = torch.arange(2.0 * kernel.tile.columns - 8).view(2, -1)
        arguments = ScaleArguments(x, torch.full_like(x, torch.nan), 0.3)
        expected = {"out": (x.double() * 0.3, largest_error)}
        return Problem(arguments, expected, tolerance(torch.float32))


OPERATOR = Scale()
