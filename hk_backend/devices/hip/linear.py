"""`linear` on a GPU: an unpacked weight, multiplied by the gemm kernels
(csrc/include/hk/args/gemm.hpp). Launched and verified, but no engine's layer is routed here yet.
"""

from __future__ import annotations

import torch

from hk_backend import reference
from hk_backend.devices.hip.call import KernelCall, Work, bad
from hk_backend.devices.hip.operator import Problem, Usable
from hk_backend.kernels import Catalogue, KernelEntry, NoKernel
from hk_backend.routing.shadow_check import largest_error, tolerance
from hk_backend.terms.linear_arguments import LinearArguments
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import Verdict, refused

OPERATOR = "gemm"
DTYPES = {torch.bfloat16: "bf16", torch.float16: "f16"}
FORMATS = {torch.bfloat16: "bf16", torch.float16: "fp16"}
LAYOUT = "rows"
"""Of a weight that is not packed: its rows, one after the other."""
ALIGNMENT = 16
"""Of every row, in bytes."""
ROW_ELEMENTS = 2**22
"""From one row to the next: fewer."""
PROBLEM = (300, 264, 200)
"""(M, N, K): neither fills its last tile."""


def verdict(request: LinearRequest, kernels: Catalogue, usable: Usable) -> Verdict:
    """Whether a usable kernel computes `request`; if not, one line that says why."""
    return refused(f"no linear kernels for {kernels.arch} yet")


def prepare(of: LinearArguments, kernels: Catalogue) -> KernelCall:
    """The launch of one call, whose arguments the operator has checked.

    Raises:
        ValueError: what the kernels do not compute, or rows that they cannot read; names the
            argument, its value and what would be valid.
    """
    x, weight, out = of.x, of.weight, of.out
    kernel = _kernel_of(of, kernels)
    rows = weight.data.view(x.dtype).view(weight.n, weight.k)
    tensors = {"a": x, "b": rows, "c": out}
    numbers: dict[str, float] = {}
    for (name, tensor), argument in zip(tensors.items(), ("x", "weight", "out"), strict=True):
        numbers[f"{name}_row"] = _row_stride(argument, tensor)
        address = tensor.data_ptr()
        if address % ALIGNMENT:
            bad(argument, f"address {address:#x}", f"a multiple of {ALIGNMENT} bytes")
    sizes = {"m": x.shape[0], "n": weight.n}
    work = Work(x.shape[0], "rows of linear layers")
    return KernelCall((kernel,), tensors, numbers | sizes | {"k": weight.k}, sizes, work)


def _kernel_of(of: LinearArguments, kernels: Catalogue) -> KernelEntry:
    """The kernel that computes this; refuses what none does."""
    x, weight = of.x, of.weight
    if x.dtype not in DTYPES:
        bad("x", x.dtype, "bfloat16 or float16")
    if (weight.format, weight.layout) != (FORMATS[x.dtype], LAYOUT):
        expected = f"{FORMATS[x.dtype]} as {LAYOUT}, with x in {x.dtype}"
        bad("weight", f"{weight.format} packed for {weight.layout}", expected)
    if of.bias is not None:
        bad("bias", "a tensor", None)
    if of.out.dtype != x.dtype:
        bad("out", of.out.dtype, f"the dtype of x, {x.dtype}")
    dtype = DTYPES[x.dtype]
    found = kernels.select(OPERATOR, a=dtype, b=dtype, out=dtype)
    if isinstance(found, NoKernel):
        bad("x", x.dtype, " or ".join(map(str, found.valid)))
    return found


def _row_stride(argument: str, tensor: torch.Tensor) -> int:
    rows, columns = tensor.shape
    whole = ALIGNMENT // tensor.element_size()
    # torch allows any stride for an axis of one element
    stride = tensor.stride(0) if rows > 1 else -(-columns // whole) * whole
    if stride % whole or not columns <= stride < ROW_ELEMENTS:
        expected = f"a multiple of {whole} from {columns} on, below {ROW_ELEMENTS}"
        bad(argument, f"a stride of {stride} elements", expected)
    return stride


def self_check_problem(kernel: KernelEntry) -> Problem:
    """What `kernel` must solve before its first use."""
    dtype = next(dtype for dtype, name in DTYPES.items() if name == kernel.facts["a"])
    m, n, k = PROBLEM
    random = torch.Generator().manual_seed(0)
    x, rows = (torch.randn(size, k, generator=random).to(dtype) for size in (m, n))
    data = rows.view(torch.uint8).flatten()
    weight = PackedWeight(data, None, None, None, FORMATS[dtype], n, k, "none", LAYOUT)
    out = torch.full((m, n), torch.nan, dtype=dtype)
    expected = reference.linear(x, rows, FORMATS[dtype])
    arguments = LinearArguments(x, weight, None, out)
    return Problem(arguments, {"out": (expected, largest_error)}, tolerance(dtype))
