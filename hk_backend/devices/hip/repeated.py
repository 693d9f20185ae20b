"""Launches of linear layers that are made once and repeated.

A layer is called many times with the same number of rows, on other tensors of the same layout, and
the layers of a model have few shapes. So the first call of a shape takes the path that checks and
chooses everything. The kernel arguments of its launches are kept as bytes.

On a later call, the launcher (csrc/hip/repeated.hpp) compares the tensors' dtypes, layouts and
devices with those of the first, and patches in their addresses. It does not launch a call that
differs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch

from hk_backend import _hip
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.linear import scale_of_all
from hk_backend.devices.hip.memory import Memory, spanned_bytes
from hk_backend.devices.hip.modules import HipKernels
from hk_backend.devices.hip.plan import ALIGNMENT, reads_tensors
from hk_backend.devices.hip.workspace import Workspaces
from hk_backend.terms.linear_arguments import LinearArguments
from hk_backend.terms.packed_weight import FlatWeight

MOST = 4096
"""Most shapes that are kept: one for each number of rows and kind of layer."""
TENSORS = (
    *("x", "data", "factors", "block_scales", "input_scale", "bias", "x_scales"),
    *("scale", "out", "scratch", "partial", "arrived"),
)
"""Tensors of a call, in the launcher's order. `scale` is the scale of the whole x, where torch
computes it first. `scratch` holds intermediate results between the launches. `partial` and
`arrived` are the workspace."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The launches of one call, to be repeated.

    Args:
        call: the last launch without its tensors, whose `work` says how much it does.
        out: template of the output: one element of memory, expanded to the shape. Allocating like a
            tensor takes half the time of allocating by shape, dtype and device.
        scratch: template of the scratch memory, likewise.
        derive: computes the scale of the whole x.
        partial_bytes: bytes of `partial` that the launches use.
        tiles: counters of `arrived` that the launches use.
    """

    native: _hip.Repeated
    call: KernelCall
    out: torch.Tensor
    scratch: torch.Tensor | None
    derive: Callable[[torch.Tensor], torch.Tensor] | None
    partial_bytes: int
    tiles: int


class RepeatedLinears:
    """Kept launches of one device, by the properties that calls must share to be launched alike."""

    def __init__(self, memory: Memory, kernels: HipKernels, workspaces: Workspaces) -> None:
        self._memory = memory
        self._kernels = kernels
        self._workspaces = workspaces
        self._kept: dict[Hashable, Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def forget(self) -> None:
        """Drops every launch, so that the next call of each shape counts as its first."""
        self._kept.clear()

    def launch(
        self,
        x: torch.Tensor,
        weight: FlatWeight,
        bias: torch.Tensor | None,
        out_dtype: torch.dtype,
        x_scales: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Enqueues a kept launch and returns its output; None, and nothing is done, without one.

        Args:
            x: `[M, K]`; the other arguments are as in `ops.linear`.
        """
        *tensors, ints = weight
        kept = self._kept.get(
            (x.shape, x.stride(), x.dtype, out_dtype, bias is None, x_scales is None, *ints)
        )
        if kept is None:
            return None
        out = torch.empty_like(kept.out)
        scale = scratch = partial = arrived = None
        if kept.derive is not None:
            scale = kept.derive(x).view(1, 1)
        if kept.scratch is not None:
            scratch = torch.empty_like(kept.scratch)
        index = self._memory.index(x)
        stream = self._memory.stream(index)
        if kept.partial_bytes:
            workspace = self._workspaces.of(index, stream, kept.partial_bytes)
            partial, arrived = workspace.partial, workspace.arrived
        given = (x, *tensors, bias, x_scales, scale, out, scratch, partial, arrived)
        if self._memory.is_direct:
            return out if kept.native.launch(stream, given) else None
        there = {name: t for name, t in zip(TENSORS, given, strict=True) if t is not None}
        if partial is not None and arrived is not None:  # only the bytes that the kernel may touch
            own = {"partial": partial.view(torch.uint8)[: kept.partial_bytes]}
            there |= own | {"arrived": arrived[: kept.tiles]}
        with self._memory.addresses(replace(kept.call, tensors=there)) as addresses:
            found = [addresses.get(name, 0) for name in TENSORS]
            return out if kept.native.launch(stream, given, found) else None

    def keep(
        self,
        of: LinearArguments,
        calls: Sequence[KernelCall],
        made: Sequence[torch.Tensor],
        scales: torch.Tensor | None,
        index: int,
    ) -> None:
        """Keeps the launches of a call on GPU `index`.

        A call is not kept if its launches use tensors besides those of the call and `made`, such as
        a copy of x.

        Args:
            calls: launches of one kernel each.
            made: tensors that the launches write for each other.
            scales: scales by which x is or was rounded, if at all.
        """
        if not reads_tensors:
            return
        weight, last = of.weight, calls[-1].tensors
        offsets, scratch_bytes = [], 0
        for tensor in made:
            offsets.append(scratch_bytes)
            scratch_bytes += -(-spanned_bytes(tensor) // ALIGNMENT) * ALIGNMENT
        scratch = torch.empty(scratch_bytes, dtype=torch.uint8, device=of.x.device)
        tensors, ints = weight.flat()[:-1], weight.as_ints()
        derive = scale_of_all(of)
        scale = None if derive is None else scales
        given = (of.x, *tensors, of.bias, of.x_scales, scale, of.out, scratch if made else None)
        given += (last.get("partial"), last.get("arrived"))
        spans = [(t, i, 0) for i, t in enumerate(given) if t is not None]
        spans += [(t, TENSORS.index("scratch"), at) for t, at in zip(made, offsets, strict=True)]
        places = _Places(spans)
        launches = []
        for call in calls:
            fields = {field.name: field.offset for field in call.kernels[0].arguments.fields}
            found = {name: places.of(tensor) for name, tensor in call.tensors.items()}
            patches = [(*place, fields[name]) for name, place in found.items() if place]
            if len(patches) < len(found):
                return
            kernel = self._kernels.load(call.kernels[0], index)
            argument = call.kernels[0].arguments.pack(call.values({}))
            launches.append((kernel, argument, patches))
        if len(self) >= MOST:
            self.forget()
        of_x = (of.x.shape, of.x.stride(), of.x.dtype)
        key = (*of_x, of.out.dtype, of.bias is None, of.x_scales is None, *ints)
        native = _hip.Repeated(launches, given, TENSORS.index("partial"), ALIGNMENT)
        room = [last["partial"].nbytes, len(last["arrived"])] if "partial" in last else [0, 0]
        last_call = replace(calls[-1], tensors={})
        anew = _form_of(of.out), _form_of(scratch) if made else None
        self._kept[key] = Kept(native, last_call, *anew, derive, *room)


def _form_of(tensor: torch.Tensor) -> torch.Tensor:
    """Template with a contiguous tensor's shape, dtype and device, over memory of one element."""
    with torch.inference_mode(False):  # else autograd could never use tensors made like it
        one = torch.empty(1, dtype=tensor.dtype, device=tensor.device)
        return one.expand(tensor.shape)


class _Places:
    """Finds which tensor of a call contains another tensor, and at which byte.

    Args:
        spans: tensors, each with the number of the tensor that contains it, and the byte at which.
    """

    def __init__(self, spans: Sequence[tuple[torch.Tensor, int, int]]) -> None:
        ends = [(t.data_ptr(), t.data_ptr() + spanned_bytes(t), i, at) for t, i, at in spans]
        self._spans = sorted(ends)
        pairs = zip(self._spans, self._spans[1:], strict=False)
        self._overlap = any(one[1] > other[0] for one, other in pairs)

    def of(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """Number of the containing tensor, and the byte in it; None: no tensor, or unclear."""
        begin = tensor.data_ptr()
        for first, last, number, at in self._spans:
            if first <= begin and begin + spanned_bytes(tensor) <= last:
                return None if self._overlap else (number, at + begin - first)
        return None
