"""Runs a kernel in the emulator on buffers of a test's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hk_backend.kernels.entry import KernelEntry, pack_arguments

if TYPE_CHECKING:
    from hk_backend._emulator import Report


def run(
    entry: KernelEntry,
    buffers: Mapping[str, NDArray[Any]],
    numbers: Mapping[str, float | int | None],
    seed: int = 0,
) -> Report:
    """Launches a kernel, with every check on.

    Args:
        buffers: memory by the struct's pointer fields.
        numbers: values of all other fields; None for a pointer without memory.
    """
    from hk_backend import _emulator

    machine = _emulator.Machine(entry.arch)
    code = _emulator.CodeObject.load(entry.code_object(), entry.line_tables())
    addresses = {
        name: machine.map(buffer.ctypes.data, buffer.nbytes, name)
        for name, buffer in buffers.items()
    }
    argument = pack_arguments(entry, **addresses, **numbers)
    return machine.launch(
        code.kernel(entry.symbol),
        list(entry.workgroups(argument)),
        [entry.block],
        argument,
        dynamic_lds=entry.dynamic_lds,
        seed=seed,
    )
