"""The hip device: the code objects of the catalogue on an AMD GPU, through HIP's module API.

The emulated device (emulated.py) is the same class with another library and another memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from hk_backend.devices.base import Arguments, DeviceError, Request
from hk_backend.devices.hip import attention, attention_parts, linear, pack_weight, quantize_fp8
from hk_backend.devices.hip.call import KernelCall, bad
from hk_backend.devices.hip.dealing import Layer
from hk_backend.devices.hip.library import (
    HipError,
    HipLibrary,
    ended_by_a_capture,
    mapped_library,
)
from hk_backend.devices.hip.memory import GpuMemory, Memory
from hk_backend.devices.hip.merge import merge_attention
from hk_backend.devices.hip.modules import HipKernels
from hk_backend.devices.hip.operator import Machine, Operator
from hk_backend.devices.hip.prepared_attention import (
    PreparedAttention,
    can_prepare,
    prepare_attention,
)
from hk_backend.devices.hip.prepared_linear import PreparedLinear, prepare_linear
from hk_backend.devices.hip.recording import reads_tensors
from hk_backend.devices.hip.self_check import self_check
from hk_backend.devices.hip.workspace import Workspaces
from hk_backend.kernels import Catalogue, CodeObjectError, Family, KernelEntry, catalogue
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.linear_arguments import (
    LinearArguments,
    PackWeightArguments,
    QuantizeFp8Arguments,
)
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import SERVED, Verdict, refused

logger = logging.getLogger(__name__)

OPERATORS: dict[str, Operator] = {
    "attention_prefill": attention,
    "linear": linear,
    "quantize_fp8": quantize_fp8,
}
BY_KERNELS: dict[str, Operator] = {
    "attention_prefill": attention,
    linear.OPERATOR: linear,
    quantize_fp8.OPERATOR: quantize_fp8,
    attention_parts.MERGE: attention_parts,
}
"""Operator modules by the catalogue's operator name of their kernels."""
IN_TORCH: dict[str, Callable[[Any], None]] = {
    "merge_attention": merge_attention,
    "pack_weight": pack_weight.pack_weight,
}

SelfCheck = Callable[["HipDevice", Operator, KernelEntry, int], Verdict]


class HipDevice:
    """GPUs of one arch behind one HIP library.

    Args:
        kind: first part of the device's name, "hip" or "emulated".
        check: self-check that a kernel must pass before its first use.
    """

    def __init__(
        self,
        library: HipLibrary,
        kernels: Catalogue,
        memory: Memory | None = None,
        *,
        kind: str = "hip",
        check: SelfCheck = self_check,
    ) -> None:
        self.name = f"{kind}:{kernels.arch}"
        self.library = library
        self.catalogue = kernels
        self.memory = GpuMemory() if memory is None else memory
        self.kernels = HipKernels(library)
        self.weight_layout = kernels.arch if linear.OPERATOR in kernels.families else ""
        self.workspaces = Workspaces(self.memory, library)
        self.linear_calls: dict[Hashable, Any] = {}
        self._check = check
        self._verdicts: dict[tuple[str, str, int], Verdict] = {}
        """Verdicts by operator, kernel name and GPU; kernels of two operators may share a name."""

    def packed_bytes(self, format: str, n: int, k: int) -> int:
        if not self.weight_layout or format not in pack_weight.FORMATS_OF:
            raise self._missing(f"linear ({format})")
        return pack_weight.packed_bytes(format, n, k)

    def is_capturing(self) -> bool:
        return self.library.is_capturing(self.memory.stream(self.memory.current_index()))

    def verdict(self, request: Request) -> Verdict:
        """Decides from host facts. The first request for a kernel also runs the kernel's
        self-check."""
        if request.device_type != self.memory.tensors_on:
            return refused(f"tensors on {request.device_type} with the device {self.name}")
        operator = OPERATORS[request.operator]

        def usable(kernels: Family) -> Verdict:
            of_kernels = BY_KERNELS[kernels[0].operator]
            found = self._usable(of_kernels, kernels, self.memory.current_index())
            return found if isinstance(found, Verdict) else SERVED

        try:
            return operator.verdict(request, self.catalogue, usable)
        except CodeObjectError as error:  # the operator's index is read only now
            return refused(str(error))

    def verify(self, operator: Operator, kernel: KernelEntry, index: int) -> Verdict:
        """Whether `kernel` passes its self-check on GPU `index`, which runs once per process.

        The check waits for the GPU. Call this where layers are constructed, not in a request.
        """
        key = kernel.operator, kernel.name, index
        known = self._verdicts.get(key)
        if known is None:
            with self.library.current(index):  # the stream may be this GPU's null stream
                if self.library.is_capturing(self.memory.stream(index)):
                    return refused(
                        f"{kernel.name}: its first use cannot be in a graph capture, call it before"
                    )
            try:
                known = self._check(self, operator, kernel, index)
            except Exception as error:  # torch raises a kernel's fault when it next waits
                known = refused(
                    f"{kernel.name} cannot run on device {index} of {self.name}: "
                    f"{type(error).__name__}: {error}"
                )
                if ended_by_a_capture(error):  # the error says nothing about the kernel
                    return known
            self._verdicts[key] = known
            if not known:
                logger.error("hk_backend: %s", known.why)
        return known

    def run(self, arguments: Arguments) -> None:
        """Enqueues the operator on torch's current stream, without waiting.

        Raises:
            ValueError: the kernels do not compute this argument; nothing was launched.
            DeviceError, HipError: there are no kernels, the launch failed, or a kernel failed its
                self-check.
        """
        in_torch = IN_TORCH.get(arguments.operator)
        if in_torch is not None:
            in_torch(arguments)
            return self._reserve(arguments) if isinstance(arguments, PackWeightArguments) else None
        operator = OPERATORS.get(arguments.operator)
        if operator is None:
            raise self._missing(arguments.operator)
        if isinstance(arguments, LinearArguments):
            return self._run_linear(arguments)
        if isinstance(arguments, AttentionArguments):
            return self._run_attention(arguments)
        call = self._ready(operator, arguments)
        return None if call is None else self.launch(call, self._index(call))

    def launch(self, call: KernelCall, index: int) -> None:
        """Enqueues a call of one kernel on the current stream of GPU `index`."""
        with self.memory.addresses(call.tensors, call.work) as addresses:
            stream = self.memory.stream(index)
            self.kernels.launch(call.kernel, index, stream, **call.values(addresses))

    def prepare(
        self, arguments: Arguments, tensors: Sequence[torch.Tensor | None]
    ) -> PreparedAttention | PreparedLinear | None:
        if not reads_tensors:
            return None
        if isinstance(arguments, AttentionArguments):
            return self._prepare_attention(arguments, tensors)
        if isinstance(arguments, LinearArguments):
            return self._prepare_linear(arguments)
        return None

    def _prepare_attention(
        self, of: AttentionArguments, tensors: Sequence[torch.Tensor | None]
    ) -> PreparedAttention | None:
        call = attention.prepare(of, self.catalogue)
        if not can_prepare(call) or of.key_start_loc is not None:
            return None
        index = self.memory.index(of.query)
        call = self._with_usable(attention, call, index)
        paged = of.paged_kv is not None
        parts = self._kernels_of_parts(call, index) if paged else None
        place = self.memory, self.library, self.kernels, self.workspaces, index
        return prepare_attention(*place, call, parts, tensors, paged)

    def _prepare_linear(self, of: LinearArguments) -> PreparedLinear | None:
        if not linear.reads_in_place(of):
            return None
        calls, made, scales = self._linear_calls(of, linear.quantisation(of, _unknown_scale))
        if not calls:
            return None
        place = self.memory, self.kernels, self.workspaces, self._index(calls[0])
        return prepare_linear(*place, of, calls, made, scales)

    def compute_units(self, index: int) -> int:
        """Number of compute units of GPU `index`."""
        return self.library.compute_units(index)

    def linear_microseconds(self, request: LinearRequest, rows: int) -> float:
        """Microseconds of HK's launch for a layer, as timed on this machine or else as planned."""
        units = self.compute_units(self.memory.current_index())
        return linear.microseconds(request, rows, self.catalogue, units)

    def gpu(self, index: int) -> Machine:
        """The properties of GPU `index` that a launch may depend on."""
        return OneGpu(self.library, self.memory, self.workspaces, index)

    def _reserve(self, packed: PackWeightArguments) -> None:
        """Reserves workspace for the launches with a packed weight."""
        index = self.memory.index(packed.data)
        units = self.gpu(index).compute_units
        room = linear.workspace_bytes(packed, self.catalogue, units)
        self.workspaces.reserve(index, room)

    def _run_attention(self, of: AttentionArguments) -> None:
        """Runs attention as one launch, or as a launch over parts of the keys and a merge."""
        call = self._ready(attention, of)
        if call is None:
            return
        index = self._index(call)
        for each in self._dealt(call, of.max_seq_len, index):
            self.launch(each, index)

    def _dealt(self, call: KernelCall, longest: int | None, index: int) -> Sequence[KernelCall]:
        """The planned launches of a call."""
        stream, units = self.memory.stream(index), self.compute_units(index)
        shares = longest is not None and not self.library.is_capturing(stream)
        step = call.sizes["num_tokens"], call.sizes["num_requests"], longest
        choice = Layer.of(call, units, parts=shares).choose(*step)
        kernels = self._kernels_of_parts(call, index) if choice.parts.number > 1 else None
        if kernels is None:
            rows = Layer.of(call, units).choose(*step).rows
            chosen = tuple(each for each in call.kernels if each.tile.rows == rows)
            return (replace(call, kernels=chosen),)
        tokens, heads, head_size = call.tensors["out"].shape
        room = attention_parts.workspace_bytes(choice.parts.number * tokens * heads, head_size)
        memory = self.workspaces.of(index, stream, room).partial
        return attention_parts.in_parts(call, choice.parts, kernels, memory)

    def _kernels_of_parts(self, call: KernelCall, index: int) -> tuple[Family, Family] | None:
        """Usable kernels for parts and for the merge; None if either has none."""
        there = attention_parts.kernels_of(call, self.catalogue)
        if there is None:
            return None
        parts, merge = (self._usable(attention_parts, family, index) for family in there)
        if isinstance(parts, Verdict) or isinstance(merge, Verdict):
            return None
        return parts, merge

    def _run_linear(self, of: LinearArguments) -> None:
        """Rounds x as the kernels need it, and multiplies."""
        calls, *_ = self._linear_calls(of, linear.quantisation(of))
        for call in calls:
            self.launch(call, self._index(call))

    def _linear_calls(
        self, of: LinearArguments, quantise: QuantizeFp8Arguments | None
    ) -> tuple[list[KernelCall], list[torch.Tensor], torch.Tensor | None]:
        """The launches of a call, the tensors that they write for each other, and x's scales."""
        if quantise is None:
            ready = [self._ready(linear, of)]
            return [call for call in ready if call is not None], [], of.x_scales
        made = [quantise.codes, quantise.scales] if quantise.dynamic else [quantise.codes]
        rounded = replace(of, x=quantise.codes, x_scales=quantise.scales)
        ready = [self._ready(quantize_fp8, quantise), self._ready(linear, rounded)]
        return [call for call in ready if call is not None], made, quantise.scales

    def _ready(self, operator: Operator, arguments: Arguments) -> KernelCall | None:
        """The launch of a call, with its usable kernels; None if there is nothing to write."""
        call = operator.prepare(arguments, self.catalogue)
        name, tensor = next(iter(call.tensors.items()))
        if tensor.device.type != self.memory.tensors_on:
            bad(name, f"a tensor on {tensor.device.type}", self.memory.tensors_on)
        if call.is_empty:
            return None
        index = self.memory.index(tensor)
        return operator.settle(self._with_usable(operator, call, index), self.gpu(index))

    def _index(self, call: KernelCall) -> int:
        """Index of the GPU that a launch runs on."""
        return self.memory.index(next(iter(call.tensors.values())))

    def _with_usable(self, operator: Operator, call: KernelCall, index: int) -> KernelCall:
        """The call with those of its kernels that may run on GPU `index`. Raises `DeviceError`."""
        found = self._usable(operator, call.kernels, index)
        if isinstance(found, Verdict):
            raise DeviceError(found.why)
        return replace(call, kernels=found)

    def _usable(self, operator: Operator, kernels: Family, index: int) -> Family | Verdict:
        """The alternatives that may run on GPU `index`, or the reason why none may."""
        verdicts = [self.verify(operator, kernel, index) for kernel in kernels]
        if not any(verdicts):
            return refused("; ".join(verdict.why for verdict in verdicts))
        return tuple(kernel for kernel, verdict in zip(kernels, verdicts, strict=True) if verdict)

    def _missing(self, operator: str) -> DeviceError:
        return DeviceError(f"{self.name}: no {operator} kernels for {self.catalogue.arch} yet")


def _unknown_scale(x: torch.Tensor) -> torch.Tensor:
    """Memory of a scale that is computed with each launch."""
    return torch.empty(1, dtype=torch.float32, device=x.device)


@dataclass(frozen=True)
class OneGpu:
    """Properties of GPU `index` that a launch may depend on (operator.Machine)."""

    library: HipLibrary
    memory: Memory
    workspaces: Workspaces
    index: int

    @property
    def compute_units(self) -> int:
        return self.library.compute_units(self.index)

    def workspace(self, partial_bytes: int) -> Mapping[str, torch.Tensor]:
        stream = self.memory.stream(self.index)
        return self.workspaces.of(self.index, stream, partial_bytes).tensors


@cache
def hip_device() -> HipDevice:
    """The GPUs of this machine.

    Raises:
        DeviceError: there is no HIP runtime, no GPU, or no kernels for its arch.
    """
    library = mapped_library()
    try:
        if not library.device_count():
            raise DeviceError(f"the HIP runtime {library.path} sees no GPU")
        return HipDevice(library, catalogue(library.arch(0)))
    except (HipError, CodeObjectError) as error:
        raise DeviceError(str(error)) from error
