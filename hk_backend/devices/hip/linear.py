"""`linear` on a GPU: multiplies rows by a packed weight. If it asks for it, they become FP8 first.

The kernels' argument struct is csrc/include/hk/args/gemm.hpp.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import torch

from hk_backend.devices.hip import linear_family, quantize_fp8
from hk_backend.devices.hip.call import KernelCall, Work, bad
from hk_backend.devices.hip.linear_family import ALIGNMENT, ELEMENTS, TYPES, family_of
from hk_backend.devices.hip.linear_problem import problem_of
from hk_backend.devices.hip.linear_quantisation import quantisation
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
from hk_backend.devices.hip.weight_layout import FORMATS_OF, READERS
from hk_backend.kernels import Catalogue, Family, KernelEntry
from hk_backend.kernels.gemm_operands import Operands, operands_of
from hk_backend.kernels.gemm_plan import can_split, sum_bytes, tiles_of
from hk_backend.measurements.launches import timed_here
from hk_backend.terms.linear_arguments import (
    LinearArguments,
    PackWeightArguments,
    QuantizeFp8Arguments,
)
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import Verdict
from hk_backend.terms.weight_format import FORMATS

ROW_BYTES = 2**23
"""Exclusive bound of the bytes from one row to the next."""


class Linear(HipOperator):
    """A gemm kernel, the fastest for the call's sizes, behind the quantiser's kernel if need be."""

    def verdict(self, request: LinearRequest, kernels: Catalogue, usable: Usable) -> Verdict:
        family = linear_family.find(request, kernels)
        if isinstance(family, Verdict):
            return family
        found = usable(self, family)
        if not found or request.activations == "none":
            return found
        # the quantiser's self-check, too, runs before any capture
        of_layer = request.dtype, request.activations, request.k
        kernel = quantize_fp8.kernel_of_layer(kernels, *of_layer)
        return usable(quantize_fp8.OPERATOR, (kernel,))

    def prepare(self, arguments: LinearArguments, kernels: Catalogue) -> KernelCall:
        """Prepares the launch for x in the dtype that the kernels multiply.

        Every kernel for these operands is a candidate, and the depth is not split.
        """
        of, weight = arguments, arguments.weight
        x = _rows_of_16_bytes(of.x)
        by_block = weight.block_scales is not None or weight.activations == "token_block"
        family = family_of(kernels, x.dtype, weight.format, by_block)
        if not family:
            found = f"{weight.format} with activations {weight.activations!r} and x in {x.dtype}"
            bad("weight", found, " or ".join(FORMATS_OF))
        tensors = {"a": x, "b": weight.data, "c": of.out}
        bias = None if of.bias is None else _words_of_4_bytes(of.bias)
        x_scales = of.x_scales
        if x_scales is not None and not by_block:
            x_scales = x_scales.contiguous()
        optional = {
            "a_scale": x_scales,
            "b_scale": weight.factors,
            "b_block_scale": weight.block_scales,
            "bias": bias,
        }
        tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
        numbers = {
            "a_row": x.stride(0) if x.shape[0] > 1 else weight.k,
            "c_row": of.out.stride(0) if x.shape[0] > 1 else weight.n,
            "k": weight.k,
            "splits": 1,
            "c_type": TYPES[of.out.dtype],
            "bias_type": 0 if bias is None else TYPES[bias.dtype],
            **_scale_strides(x_scales),
        }
        sizes = {"m": x.shape[0], "n": weight.n}
        work = Work(x.shape[0], "rows of linear layers")
        return KernelCall(family, tensors, numbers | sizes, sizes, work)

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
    of: LinearArguments, quantise: QuantizeFp8Arguments | None, gpus: Gpus
) -> tuple[list[KernelCall], list[torch.Tensor], torch.Tensor | None]:
    """The launches of a call, the tensors that they write for each other, and x's scales."""
    if quantise is None:
        ready = [gpus.ready(OPERATOR, of)]
        return [call for call in ready if call is not None], [], of.x_scales
    made = [quantise.codes, quantise.scales] if quantise.dynamic else [quantise.codes]
    rounded = replace(of, x=quantise.codes, x_scales=quantise.scales)
    ready = [gpus.ready(quantize_fp8.OPERATOR, quantise), gpus.ready(OPERATOR, rounded)]
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
    formats: defaultdict[Operands, Family] = defaultdict(tuple)
    b = FORMATS[of.format].dtype
    same_dtype = of.activations != "none" or b in TYPES
    elements = [ELEMENTS[b]] if same_dtype else [ELEMENTS[a] for a in ELEMENTS if a in TYPES]
    for entry in kernels.families.get(READERS, ()):
        if entry.facts["b"] == ELEMENTS[b] and entry.facts["a"] in elements:
            formats[operands_of(entry)] += (entry,)
    most = timed_here(kernels.arch).most_sum_bytes
    sizes = (of.n, of.k, compute_units)
    return max((most(family, *sizes) for family in formats.values()), default=0)


def _scale_strides(scales: torch.Tensor | None) -> dict[str, int]:
    """Elements between scales of neighbouring rows, and of neighbouring blocks; 0: only one."""
    if scales is None:
        return {"a_scale_row": 0, "a_scale_step": 0}
    strides = (
        0 if length == 1 else stride
        for length, stride in zip(scales.shape, scales.stride(), strict=True)
    )
    return dict(zip(("a_scale_row", "a_scale_step"), strides, strict=True))


def reads_in_place(of: LinearArguments) -> bool:
    """Whether the kernels read all tensors of a call in place, and the launcher repeats it."""
    if any(t is not None and t.data_ptr() % ALIGNMENT for t in of.tensors().values()):
        return False
    quantised = of.weight.activations != "none" and of.x_scales is None
    return (quantised or _has_rows_of_16_bytes(of.x)) and (of.bias is None or _has_words(of.bias))


def _has_rows_of_16_bytes(x: torch.Tensor) -> bool:
    row = x.stride(0) * x.element_size() if x.shape[0] > 1 else 0
    return x.data_ptr() % ALIGNMENT == row % ALIGNMENT == 0 and row < ROW_BYTES


def _rows_of_16_bytes(x: torch.Tensor) -> torch.Tensor:
    """x, or a contiguous copy if the kernels cannot read its rows in place."""
    return x if _has_rows_of_16_bytes(x) else x.clone(memory_format=torch.contiguous_format)


def _has_words(bias: torch.Tensor) -> bool:
    """Whether a bias begins and ends at multiples of 4 bytes."""
    return bias.data_ptr() % 4 == bias.nbytes % 4 == 0


def _words_of_4_bytes(bias: torch.Tensor) -> torch.Tensor:
    """The bias, converted to float32 if the kernels cannot read its words."""
    return bias if _has_words(bias) else bias.float()
