"""Launches of linear layers that are made once and repeated.

A layer is called again and again with as many rows, on other tensors of the same layout; and the
layers of a model have few shapes. So the first call of a shape goes the way on which everything is
checked and chosen, and what it launched is kept: the arguments of its kernels as bytes. Of a later
call the launcher (csrc/hip/repeated.hpp) compares the tensors' dtypes, layouts and devices with
those of the first, and puts their addresses in place. What does not fit, it does not launch.
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
"""Shapes that are kept: of each number of rows, one for each kind of layer."""
TENSORS = (
    *("x", "data", "factors", "block_scales", "input_scale", "bias", "x_scales"),
    *("scale", "out", "scratch", "partial", "arrived"),
)
"""Of a call. `scale`: of all of x, where torch computes it first; `scratch`: what the launches
leave for each other; the last two: the workspace."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a call launched; the last one, `call` (without its tensors), says how much it does.

    `out`, `scratch`: like the tensors that each call needs anew, in one element of memory: to
    allocate like another tensor takes half of the time of allocating by shape, dtype and device.
    `derive`: of x, the scale of all of it.
    """

    native: _hip.Repeated
    call: KernelCall
    out: torch.Tensor
    scratch: torch.Tensor | None
    derive: Callable[[torch.Tensor], torch.Tensor] | None
    partial_bytes: int
    tiles: int


class RepeatedLinears:
    """Of one device, by what calls must have in common to be launched alike."""

    def __init__(self, memory: Memory, kernels: HipKernels, workspaces: Workspaces) -> None:
        self._memory = memory
        self._kernels = kernels
        self._workspaces = workspaces
        self._kept: dict[Hashable, Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def forget(self) -> None:
        """Every launch: the next call of a shape is its first."""
        self._kept.clear()

    def launch(
        self,
        x: torch.Tensor,
        weight: FlatWeight,
        bias: torch.Tensor | None,
        out_dtype: torch.dtype,
        x_scales: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """The result, enqueued; None, and nothing has been done: no such call has been kept.

        Args:
            x: `[M, K]`; the rest as `ops.linear` takes it.
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
        if partial is not None and arrived is not None:  # just what the kernel may touch
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
        """Remember the launches of a call on GPU `index`.

        Args:
            calls: of a kernel each.
            made: what they write for each other. If they also take other tensors that are no
                part of the call, a copy of x for example, they are not kept.
            scales: by which x is or was rounded, if it is at all.
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
            launches.append((kernel, dict(call.sizes), argument, patches))
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
    """A contiguous tensor's shape, dtype and device, over the memory of one element."""
    with torch.inference_mode(False):  # or the tensors like it could never be seen by autograd
        one = torch.empty(1, dtype=tensor.dtype, device=tensor.device)
        return one.expand(tensor.shape)


class _Places:
    """In which tensor of a call another one lies, and at which byte.

    Args:
        spans: tensors, the number of the one that each lies in, and at which byte of it.
    """

    def __init__(self, spans: Sequence[tuple[torch.Tensor, int, int]]) -> None:
        ends = [(t.data_ptr(), t.data_ptr() + spanned_bytes(t), i, at) for t, i, at in spans]
        self._spans = sorted(ends)
        pairs = zip(self._spans, self._spans[1:], strict=False)
        self._overlap = any(one[1] > other[0] for one, other in pairs)

    def of(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """None: in none of them, or nobody knows in which."""
        begin = tensor.data_ptr()
        for first, last, number, at in self._spans:
            if first <= begin and begin + spanned_bytes(tensor) <= last:
                return None if self._overlap else (number, at + begin - first)
        return None
