"""Launches of linear layers, recorded for every call whose tensors are laid out alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.linear_quantisation import scale_of_all
from hk_backend.devices.hip.memory import Memory, spanned_bytes
from hk_backend.devices.hip.operator import Gpus
from hk_backend.devices.hip.recording import ALIGNMENT, Place, Recording
from hk_backend.devices.hip.workspace import Workspaces
from hk_backend.terms.attention_step import AttentionStep
from hk_backend.terms.linear_arguments import LinearArguments

WORKSPACE = ("partial", "arrived")
"""Tensors of the stream's workspace, which may be longer than a launch needs."""


@dataclass(frozen=True, slots=True)
class PreparedLinear:
    """The launches of one call on GPU `index`, for the tensors of `LinearArguments.tensors`.

    Args:
        derive: computes the scale of the whole x.
        scratch: template of the memory for intermediate results between the launches: one element,
            expanded to the shape, from which it is allocated fastest.
        sums: elements of the workspace's `partial` that the launches use.
        tiles: elements of `arrived` that they use.
    """

    memory: Memory
    workspaces: Workspaces
    index: int
    recording: Recording
    derive: Callable[[torch.Tensor], torch.Tensor] | None
    scratch: torch.Tensor | None
    sums: int
    tiles: int

    def launch(self, step: AttentionStep | None, tensors: Sequence[torch.Tensor | None]) -> bool:
        x, stream = tensors[0], self.memory.stream(self.index)
        assert x is not None
        scale = scratch = partial = arrived = None
        if self.derive is not None:
            scale = self.derive(x).view(1, 1)
        if self.scratch is not None:
            scratch = torch.empty_like(self.scratch)
        if self.sums:
            workspace = self.workspaces.of(self.index, stream, self.sums * 4)
            partial, arrived = workspace.partial, workspace.arrived
            if not self.memory.is_direct:  # only what the kernel may touch is mapped
                partial, arrived = partial[: self.sums], arrived[: self.tiles]
        return self.recording.launch(stream, (*tensors, scale, scratch, partial, arrived))


def prepare_linear(
    gpus: Gpus,
    index: int,
    of: LinearArguments,
    calls: Sequence[KernelCall],
    made: Sequence[torch.Tensor],
    scales: torch.Tensor | None,
) -> PreparedLinear | None:
    """Records the launches of a call; None if they use other tensors, such as a copy of x.

    Args:
        made: tensors that the launches write for each other.
        scales: scales by which x is rounded, if at all.
    """
    memory, last, offsets, scratch_bytes = gpus.memory, calls[-1].tensors, [], 0
    for tensor in made:
        offsets.append(scratch_bytes)
        scratch_bytes += -(-spanned_bytes(tensor) // ALIGNMENT) * ALIGNMENT
    derive = scale_of_all(of)
    scratch = _template(scratch_bytes, of.x.device) if made else None
    tensors = {
        **of.tensors(),
        "scale": None if derive is None else scales,
        "scratch": None if scratch is None else torch.empty_like(scratch),
        **{name: last.get(name) for name in WORKSPACE},
    }
    spans = [(t, name, 0) for name, t in tensors.items() if t is not None and name != "scratch"]
    places = _Places([*spans, *((t, "scratch", at) for t, at in zip(made, offsets, strict=True))])
    launches = []
    for call in calls:
        found = {field: places.of(tensor) for field, tensor in call.tensors.items()}
        known = {field: place for field, place in found.items() if place is not None}
        if len(known) < len(found):
            return None
        launches.append((call, known))
    exact = tensors.keys() - set(WORKSPACE)
    recording = Recording(gpus.kernels, memory, index, launches, tensors, exact)
    sums, tiles = (last[name].numel() if name in last else 0 for name in WORKSPACE)
    return PreparedLinear(memory, gpus.workspaces, index, recording, derive, scratch, sums, tiles)


def _template(num_bytes: int, device: torch.device) -> torch.Tensor:
    """A byte that is expanded to many: `empty_like` allocates from it in half the time."""
    with torch.inference_mode(False):  # else autograd could never use tensors made like it
        return torch.empty(1, dtype=torch.uint8, device=device).expand(num_bytes)


class _Places:
    """Finds the tensor of a call that contains another tensor, and the byte in it.

    Args:
        spans: tensors, each with the name of the tensor that contains it, and the byte at which.
    """

    def __init__(self, spans: Sequence[tuple[torch.Tensor, str, int]]) -> None:
        ends = [(t.data_ptr(), t.data_ptr() + spanned_bytes(t), name, at) for t, name, at in spans]
        self._spans = sorted(ends)
        pairs = zip(self._spans, self._spans[1:], strict=False)
        self._overlap = any(one[1] > other[0] for one, other in pairs)

    def of(self, tensor: torch.Tensor) -> Place | None:
        """Name of the containing tensor, and the byte in it.

        None if no tensor contains it, or if tensors of the call overlap.
        """
        begin = tensor.data_ptr()
        for first, last, name, at in self._spans:
            if first <= begin and begin + spanned_bytes(tensor) <= last:
                return None if self._overlap else (name, at + begin - first)
        return None
