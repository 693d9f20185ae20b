"""`linear` on a GPU: rows times a packed weight, rounded to FP8 first if the weight asks for it.

The kernels' argument struct is csrc/include/hk/args/gemm.hpp.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from hk_backend.devices.hip.call import KernelCall, Work, bad
from hk_backend.devices.hip.operator import Machine, Problem, Usable, Way, as_it_is
from hk_backend.devices.hip.pack_weight import FORMATS_OF, pack_weight, packed_bytes
from hk_backend.devices.hip.quantize_fp8 import kernel_of_layer
from hk_backend.kernels import Catalogue, Family, KernelEntry
from hk_backend.kernels.gemm_formats import Format, format_of
from hk_backend.kernels.gemm_plan import can_split, sum_bytes, tiles_of
from hk_backend.measurements.launches import timed_here
from hk_backend.routing.shadow_check import largest_error, tolerance
from hk_backend.terms.linear_arguments import (
    LinearArguments,
    PackWeightArguments,
    QuantizeFp8Arguments,
)
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import Verdict, refused
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK, MIN_FP8_SCALE

OPERATOR = "gemm"
ELEMENTS = {
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float8_e4m3fn: "e4m3",
}
"""Names of dtypes in the kernels' facts."""
TYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}
"""Numbers of dtypes in `hk::GemmType`."""
ALIGNMENT = 16
"""Alignment of every row, in bytes."""
ROW_BYTES = 2**23
"""Exclusive bound of the bytes from one row to the next."""
PROBLEM = (75, 88, 208)
"""Sizes (M, N, K) of the self-check; they fill no tile completely."""


def verdict(request: LinearRequest, kernels: Catalogue, usable: Usable) -> Verdict:
    """Whether a usable kernel computes `request`; if not, one line that says why."""
    if not kernels.families.get(OPERATOR):
        return refused(f"no linear kernels for {kernels.arch} yet")
    if request.format not in FORMATS_OF:
        there = ", ".join(FORMATS_OF)
        return refused(f"{kernels.arch} has no kernels for {request.format} weights, only {there}")
    whole = ALIGNMENT // FORMATS_OF[request.format].itemsize
    if request.k % whole:
        return refused(f"K = {request.k} is not a multiple of {whole}, 16 bytes of a row")
    a = request.dtype if request.activations == "none" else FORMATS[request.format].dtype
    by_block = request.scale_kind == "block" or request.activations == "token_block"
    family = _family(kernels, a, request.format, by_block)
    if not family:
        return refused(f"{kernels.arch} has no kernels for x in {a} with {request.format} weights")
    found = usable(family)
    if not found or request.activations == "none":
        return found
    kernel = kernel_of_layer(kernels, request.dtype, request.activations, request.k)
    return usable((kernel,))  # runs the quantiser's self-check, too, before any capture


def _tensor_scale(x: torch.Tensor) -> torch.Tensor:
    """Dynamic scale of the whole x (`ops.quantize_fp8`), float32 `[1]`, without waiting for it."""
    largest = FORMATS["fp8_e4m3fn"].quantised_max
    if x.numel() == 0:
        return torch.ones(1, dtype=torch.float32, device=x.device)
    scale = x.abs().amax().float() / largest
    return scale.clamp(min=MIN_FP8_SCALE / largest).reshape(1)


def quantisation(
    of: LinearArguments, scale_of: Callable[[torch.Tensor], torch.Tensor] = _tensor_scale
) -> QuantizeFp8Arguments | None:
    """The rounding of x before the multiplication, into new tensors; None if x is taken as is.

    Args:
        scale_of: computes a dynamic scale of the whole x, float32 `[1]`.
    """
    weight, x = of.weight, of.x
    if weight.activations == "none" or of.x_scales is not None:
        return None
    codes = torch.empty(x.shape, dtype=FORMATS[weight.format].dtype, device=x.device)
    if weight.activations == "tensor":
        given = scale_of(x) if weight.input_scale is None else weight.input_scale
        group = max(x.shape[0], 1), weight.k
        return QuantizeFp8Arguments(x, group, False, False, codes, given.view(1, 1))
    by_block = weight.activations == "token_block"
    columns = FP8_BLOCK if by_block else weight.k
    # scales of one block of K lie together, as the kernels copy them for all rows
    shape = -(-weight.k // columns), x.shape[0]
    scales = torch.empty(shape, dtype=torch.float32, device=x.device).T
    return QuantizeFp8Arguments(x, (1, columns), by_block, True, codes, scales)


def scale_of_all(of: LinearArguments) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """The torch function that computes the scale of all of x before the launches, if any."""
    weight = of.weight
    given = of.x_scales is not None or weight.input_scale is not None
    return None if given or weight.activations != "tensor" else _tensor_scale


def prepare(of: LinearArguments, kernels: Catalogue) -> KernelCall:
    """Prepares the launch of one call, whose arguments the operator has checked.

    x is in the dtype that the kernels multiply. Every kernel of the format is a candidate, and the
    depth is not split.

    Raises:
        ValueError: the kernels do not compute this case. Names the argument, its value and what
            would be valid.
    """
    weight = of.weight
    x = _rows_of_16_bytes(of.x)
    by_block = weight.block_scales is not None or weight.activations == "token_block"
    family = _family(kernels, x.dtype, weight.format, by_block)
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


def settle(call: KernelCall, machine: Machine) -> KernelCall:
    """The launch with the fastest kernel and number of splits for its sizes."""
    sizes = call.sizes
    k = int(call.numbers["k"])
    timed = timed_here(call.kernels[0].arch)
    plan = timed.choose(call.kernels, sizes["m"], sizes["n"], k, machine.compute_units)
    return split(replace(call, kernels=(plan.entry,)), machine, plan.splits)


def microseconds(
    request: LinearRequest, rows: int, kernels: Catalogue, compute_units: int
) -> float:
    """Microseconds of the launch that would serve a layer: timed on this machine, else planned."""
    quantised = request.activations != "none"
    a = FORMATS[request.format].dtype if quantised else request.dtype
    by_block = request.scale_kind == "block" or request.activations == "token_block"
    family = _family(kernels, a, request.format, by_block)
    timed = timed_here(kernels.arch)
    return timed.choose(family, rows, request.n, request.k, compute_units).microseconds


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


def ways(kernel: KernelEntry, kernels: Catalogue) -> Sequence[Way]:
    """Ways to launch a kernel: without splits and, if the kernel may split, with two."""
    return (as_it_is, _in_halves) if can_split(kernel, tiles=1) else (as_it_is,)


def _in_halves(call: KernelCall, machine: Machine) -> Sequence[KernelCall]:
    return (split(call, machine, count=2),)


def workspace_bytes(of: PackWeightArguments, kernels: Catalogue, compute_units: int) -> int:
    """Most bytes of partial sums that a launch with a weight leaves in memory."""
    formats: defaultdict[Format, Family] = defaultdict(tuple)
    b = FORMATS[of.format].dtype
    alike = of.activations != "none" or b in TYPES
    elements = [ELEMENTS[b]] if alike else [ELEMENTS[a] for a in ELEMENTS if a in TYPES]
    for entry in kernels.families.get(OPERATOR, ()):
        if entry.facts["b"] == ELEMENTS[b] and entry.facts["a"] in elements:
            formats[format_of(entry)] += (entry,)
    most = timed_here(kernels.arch).most_sum_bytes
    sizes = (of.n, of.k, compute_units)
    return max((most(family, *sizes) for family in formats.values()), default=0)


def _family(kernels: Catalogue, a: torch.dtype, format: str, by_block: bool) -> Family:
    """The kernels that multiply rows in dtype `a` with weights of a format. `by_block`: either side
    has a scale for each 128 elements of the depth."""
    scales = "blocks" if by_block else "vectors"
    wanted = ELEMENTS.get(a), ELEMENTS.get(FORMATS[format].dtype), scales
    return tuple(
        entry
        for entry in kernels.families.get(OPERATOR, ())
        if tuple(entry.facts[fact] for fact in ("a", "b", "scales")) == wanted
    )


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


def self_check_problem(kernel: KernelEntry) -> Problem:
    """The problem that `kernel` must solve before its first use."""
    a, b = (next(d for d, name in ELEMENTS.items() if name == kernel.facts[of]) for of in "ab")
    format = next(name for name in FORMATS_OF if FORMATS[name].dtype == b)
    m, n, k = PROBLEM
    random = torch.Generator().manual_seed(0)
    x = torch.randn(m, k, generator=random).to(a)
    rows = torch.randn(n, k, generator=random).to(b)
    blocks = -(-k // FP8_BLOCK) if kernel.facts["scales"] == "blocks" else 1
    of_rows = 1 + torch.arange(m * blocks).view(m, blocks) % 3.0
    of_columns = 1 + torch.arange(n) % 5.0
    of_blocks = 1 + torch.arange(blocks).view(1, blocks) % 2.0 if blocks > 1 else None
    activations = "none" if a.itemsize > 1 else "token" if of_blocks is None else "token_block"
    data = torch.empty(packed_bytes(format, n, k), dtype=torch.uint8)
    pack_weight(PackWeightArguments(rows, format, n, k, None, None, activations, data))
    weight = PackedWeight(data, of_columns, of_blocks, None, format, n, k, activations, kernel.arch)
    out = torch.full((m, n), torch.nan, dtype=a if a in TYPES else torch.bfloat16)
    of_k = of_rows if of_blocks is None else of_rows * of_blocks
    wide = of_k.repeat_interleave(-(-k // blocks) if blocks == 1 else FP8_BLOCK, 1)[:, :k]
    exact = (x.double() * wide.double()) @ rows.double().T * of_columns.double()
    arguments = LinearArguments(x, weight, None, out, of_rows)
    return Problem(arguments, {"out": (exact, largest_error)}, tolerance(out.dtype))
