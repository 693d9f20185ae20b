"""`linear` on a GPU: multiplies rows by a packed weight. If it asks for it, they are rounded first.

The kernels' argument struct is csrc/include/hk/args/gemm.hpp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from hk_backend.devices.hip import linear_family, quantize_fp8, quantize_mx
from hk_backend.devices.hip import linear_operands as operands
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.linear_family import ALIGNMENT, TYPES, family_of
from hk_backend.devices.hip.linear_problem import problem_of
from hk_backend.devices.hip.linear_quantisation import Quantisation, quantisation
from hk_backend.devices.hip.operator import (
    Gpus,
    HipOperator,
    Machine,
    Problem,
    Usable,
    Way,
    as_it_is,
)
from hk_backend.devices.hip.prepared_linear import PreparedLinear, prepare_linear
from hk_backend.kernels import Catalogue, KernelEntry
from hk_backend.kernels.gemm_plan import can_split, sum_bytes, tiles_of
from hk_backend.measurements.launches import timed_here
from hk_backend.terms.linear_arguments import (
    LinearArguments,
    PackWeightArguments,
    QuantizeFp8Arguments,
    QuantizeMxArguments,
)
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import Verdict
from hk_backend.terms.weight_format import FORMATS

QUANTISERS: Mapping[str, HipOperator] = {
    QuantizeFp8Arguments.operator: quantize_fp8.OPERATOR,
    QuantizeMxArguments.operator: quantize_mx.OPERATOR,
}
"""The operators that round x before the multiplication, by name."""


class Linear(HipOperator):
    """A gemm kernel, the fastest for the call's sizes, behind the quantiser's kernel if need be."""

    def verdict(self, request: LinearRequest, kernels: Catalogue, usable: Usable) -> Verdict:
        family = linear_family.find(request, kernels)
        if isinstance(family, Verdict):
            return family
        found = usable(self, family)
        if not found or request.x_format is None:
            return found
        # the quantiser's self-check, too, runs before any capture
        if request.x_format.is_mx:
            kernel = quantize_mx.kernel_of(kernels, request.dtype, request.x_format.name)
            return usable(quantize_mx.OPERATOR, (kernel,))
        of_layer = request.dtype, request.activations, request.k
        kernel = quantize_fp8.kernel_of_layer(kernels, *of_layer)
        return usable(quantize_fp8.OPERATOR, (kernel,))

    def prepare(self, arguments: LinearArguments, kernels: Catalogue) -> KernelCall:
        """Prepares the launch for x in the form that the kernels multiply.

        Every kernel for these operands is a candidate, and the depth is not split.
        """
        return operands.call_of(arguments, kernels)

    def completed(self, call: KernelCall, machine: Machine) -> KernelCall:
        """The launch with the fastest kernel and number of splits for its sizes."""
        sizes = call.sizes
        k = int(call.numbers["k"])
        timed = timed_here(call.kernels[0].arch)
        plan = timed.choose(call.kernels, sizes["m"], sizes["n"], k, machine.compute_units)
        return split(replace(call, kernels=(plan.entry,)), machine, plan.splits)

    def run(self, arguments: LinearArguments, gpus: Gpus) -> None:
        calls, *_ = _launches(arguments, quantisation(arguments), gpus)
        for call in calls:
            gpus.launch(call, gpus.index_of(call))

    def record(
        self, arguments: LinearArguments, tensors: Sequence[torch.Tensor | None], gpus: Gpus
    ) -> PreparedLinear | None:
        if not reads_in_place(arguments):
            return None
        calls, made, scales = _launches(arguments, quantisation(arguments, _unknown_scale), gpus)
        if not calls:
            return None
        return prepare_linear(gpus, gpus.index_of(calls[0]), arguments, calls, made, scales)

    def microseconds(
        self, request: LinearRequest, rows: int, kernels: Catalogue, compute_units: int
    ) -> float:
        family = linear_family.of_request(request, kernels)
        timed = timed_here(kernels.arch)
        return timed.choose(family, rows, request.n, request.k, compute_units).microseconds

    def self_check_problem(self, kernel: KernelEntry) -> Problem:
        return problem_of(kernel)

    def ways(self, kernel: KernelEntry, kernels: Catalogue) -> Sequence[Way]:
        """Ways to launch a kernel: without splits and, if the kernel may split, with two."""
        return (as_it_is, _in_halves) if can_split(kernel, tiles=1) else (as_it_is,)


OPERATOR = Linear()


def _launches(
    of: LinearArguments, quantise: Quantisation | None, gpus: Gpus
) -> tuple[list[KernelCall], list[torch.Tensor], torch.Tensor | None]:
    """The launches of a call, the tensors that they write for each other, and x's scales."""
    if quantise is None:
        ready = [gpus.ready(OPERATOR, operands.in_kernels_order(of))]
        return [call for call in ready if call is not None], [], of.x_scales
    given = isinstance(quantise, QuantizeFp8Arguments) and not quantise.dynamic
    made = [quantise.codes] if given else [quantise.codes, quantise.scales]
    rounded = replace(of, x=quantise.codes, x_scales=quantise.scales)
    quantiser = QUANTISERS[quantise.operator]
    ready = [gpus.ready(quantiser, quantise), gpus.ready(OPERATOR, rounded)]
    return [call for call in ready if call is not None], made, quantise.scales


def _unknown_scale(x: torch.Tensor) -> torch.Tensor:
    """Memory of a scale that is computed with each launch."""
    return torch.empty(1, dtype=torch.float32, device=x.device)


def split(call: KernelCall, machine: Machine, count: int) -> KernelCall:
    """The launch of one kernel with the depth of each tile split over `count` workgroups."""
    if count == 1:
        return call
    tiles = tiles_of(call.kernels[0], call.sizes["m"], call.sizes["n"])
    room = sum_bytes(call.kernels[0], tiles, count)
    workspace = machine.workspace(room)
    own = {
        "partial": workspace["partial"][: room // workspace["partial"].itemsize],
        "arrived": workspace["arrived"][:tiles],
    }
    return replace(
        call,
        tensors={**call.tensors, **own},
        numbers={**call.numbers, "splits": count},
    )


def _in_halves(call: KernelCall, machine: Machine) -> Sequence[KernelCall]:
    return (split(call, machine, count=2),)


def workspace_bytes(of: PackWeightArguments, kernels: Catalogue, compute_units: int) -> int:
    """Most bytes of partial sums that a launch with a weight leaves in memory."""
    x_format = FORMATS[of.format].of_activations(of.activations)
    rows = TYPES if x_format is None else (x_format,)
    possible = (family_of(kernels, of.format, x, block) for x in rows for block in (False, True))
    most = timed_here(kernels.arch).most_sum_bytes
    sizes = (of.n, of.k, compute_units)
    return max((most(family, *sizes) for family in possible if family), default=0)


def reads_in_place(of: LinearArguments) -> bool:
    """Whether the kernels read all tensors of a call in place, and the launcher repeats it."""
    if any(t is not None and t.data_ptr() % ALIGNMENT for t in of.tensors().values()):
        return False
    if operands.arrives_in_mx(of):
        return False
    format = None if of.x_scales is not None else of.weight.x_format
    by_elements = format is not None and format.is_fp8  # as the FP8 quantiser reads x if need be
    whole = by_elements or operands.has_rows_of_16_bytes(of.x)
    return whole and (of.bias is None or operands.has_words(of.bias))
