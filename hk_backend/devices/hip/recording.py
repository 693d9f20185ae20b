"""Launches that are recorded once, and repeated for other tensors of the same layout.

A first call takes the path that checks and chooses everything. A recording keeps the kernels of its
launches and their packed arguments. Later calls go straight to the launcher
(csrc/hip/recording.hpp). It compares the tensors' dtypes, layouts and devices with those of the
first call, and launches nothing for a call that differs. Then it writes their addresses, and the
values of the engine's step, into the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch

from hk_backend import _hip
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.memory import Memory
from hk_backend.devices.hip.modules import HipKernels

ALIGNMENT = 16
"""Alignment of every tensor in bytes, as the kernels read and write 16 at once."""

reads_tensors = _hip.read_tensors_of(torch.Tensor)
"""Whether the launcher can read tensors: torch 2.10 and newer have DLPack's exchange table."""

Place = tuple[str, int]
"""Name of the tensor that an address lies in, and the byte in it."""
Tensors = tuple[torch.Tensor | None, ...]
Launch = Callable[..., bool]


class StepValues(_hip.Step):
    """Values of a step on GPU `index` that its launches write into their arguments.

    Args:
        names: the argument fields, in the order of the recordings that take them.
        tensors: tensors of the step, whose addresses are values.
        numbers: the other values. A field without a value becomes 0.
        rows: fewest rows of a layer's tensors.
    """

    def __init__(
        self,
        names: Sequence[str],
        index: int,
        tensors: Mapping[str, torch.Tensor],
        numbers: Mapping[str, int],
        rows: int,
    ) -> None:
        self.names, self.tensors, self.numbers = names, tensors, numbers
        self.index, self.rows = index, rows
        super().__init__(*self._at({name: t.data_ptr() for name, t in tensors.items()}))

    def at(self, addresses: Mapping[str, int]) -> _hip.Step:
        """The same values with the tensors at these addresses."""
        return _hip.Step(*self._at(addresses))

    def _at(self, addresses: Mapping[str, int]) -> tuple[int, list[int], int]:
        values = {**self.numbers, **addresses}
        return self.index, [values.get(name, 0) for name in self.names], self.rows


class Recording:
    """Launches on one GPU that follow each other.

    `launch(stream, tensors, step)` enqueues them for other tensors, in the order of the recorded
    ones, and the values of a step, if they take any. It returns False, and nothing has been done,
    if a tensor differs in layout from the recorded one. It raises `DeviceError` or `HipError` if a
    launch fails.

    Args:
        launches: each with the places of its tensors, by the struct's fields. All other tensors of
            a launch are tensors of the step.
        tensors: a tensor like each that a repetition is given, by name; None: absent.
        exact: names of the tensors that always have as many rows as these. Others have at least
            those of the step, or without a step as many as these.
        values: argument fields that are taken from the step, if a launch has them.
    """

    def __init__(
        self,
        kernels: HipKernels,
        memory: Memory,
        index: int,
        launches: Sequence[tuple[KernelCall, Mapping[str, Place]]],
        tensors: Mapping[str, torch.Tensor | None],
        exact: Collection[str],
        values: Sequence[str] = (),
    ) -> None:
        self._memory = memory
        self._names = tuple(tensors)
        self._work = launches[-1][0].work
        self._of_step: set[str] = set()
        recorded = []
        for call, places in launches:
            fields = {field.name: field for field in call.kernel.arguments.fields}
            addresses = [
                (self._names.index(name), byte, fields[taker].offset)
                for taker, (name, byte) in places.items()
            ]
            self._of_step |= set(call.tensors) - set(places)
            absent = set(call.kernel.arguments.pointers) - call.tensors.keys()
            taken = [
                (number, fields[name].offset, fields[name].size)
                for number, name in enumerate(values)
                if name in fields.keys() - absent
            ]
            argument = call.kernel.arguments.pack(call.values({}))
            recorded.append((kernels.load(call.kernel, index), argument, addresses, taken))
        given = [(tensor, name in exact) for name, tensor in tensors.items()]
        self._native = _hip.Recording(recorded, given, ALIGNMENT)
        self.launch: Launch = self._native.launch if memory.is_direct else self._launch_mapped

    def _launch_mapped(self, stream: int, tensors: Tensors, step: StepValues | None = None) -> bool:
        named = zip(self._names, tensors, strict=True)
        there = {name: tensor for name, tensor in named if tensor is not None}
        if step is not None:
            there |= {n: tensor for n, tensor in step.tensors.items() if n in self._of_step}
        with self._memory.addresses(there, self._work) as addresses:
            found = [addresses.get(name, 0) for name in self._names]
            native = None if step is None else step.at(addresses)
            return self._native.launch(stream, tensors, native, found)
