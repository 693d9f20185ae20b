"""The launcher (csrc/hip): kernels on a HIP runtime that this process has mapped.

Handles of streams, modules and functions are integers; stream 0 is the null stream. A failed HIP
call raises `HipError` (hk_backend/devices/hip/library.py), an unusable runtime `DeviceError`.
"""

import torch

Grid = tuple[int, int, int]
"""Workgroups in x, y and z."""

def runtime_of(user: str) -> str:
    """The path of the HIP library that the mapped library `user` (a path) calls, by `dladdr`.

    Raises `DeviceError` if `user` is not mapped or uses no HIP library.
    """

def read_tensors_of(tensor: type[torch.Tensor]) -> bool:
    """Read tensors through this class's DLPack exchange table from now on; False: it has none."""

class Library:
    """Functions of a HIP library; only `synchronise` waits for the GPU."""

    path: str
    def __init__(self, path: str, load: bool) -> None:
        """Use a library; `load`: map it if need be. Raises `DeviceError` if it lacks a function."""
    def device_count(self) -> int: ...
    def arch(self, index: int) -> str:
        """The arch of device `index` without its features: `gfx950`."""
    def compute_units(self, index: int) -> int:
        """Number of compute units of device `index`; a partition has only some of its GPU's."""
    def current_device(self) -> int:
        """The index of this thread's current device."""
    def set_current_device(self, index: int) -> None: ...
    def stream_device(self, stream: int) -> int:
        """The device of a stream (0: the current device)."""
    def is_capturing(self, stream: int) -> bool:
        """Whether a stream records work in a graph instead of running it.

        Also true for the null stream while a stream captures that the null stream would wait for,
        since the null stream must not be used then.
        """
    def load_image(self, image: bytes) -> int:
        """Load a code object from memory; returns its module. HIP does not check the bytes."""
    def function(self, module: int, symbol: str) -> int: ...
    def allow_dynamic_lds(self, function: int, size: int) -> None:
        """Let launches of `function` ask for `size` bytes of dynamic LDS."""
    def launch(
        self,
        function: int,
        grid: Grid,
        block: int,
        dynamic_lds: int,
        stream: int,
        argument: bytes,
    ) -> None:
        """Enqueue one kernel; `argument` is copied before this returns.

        Raises `ValueError`: more threads than HIP counts (in 32 bits; it may wrap).
        """
    def synchronise(self, stream: int) -> None:
        """Wait for a stream. Never on the way of a request."""

class GridFunction:
    """Computes the workgroups of a kernel's launches."""

    def __init__(self, name: str, tile: tuple[int, ...]) -> None:
        """The function `name` of csrc/hip/grid.cpp, for a tile of (rows, columns, depth).

        Raises `ValueError` if there is none, or the tile is empty.
        """
    def of(self, argument: bytes) -> Grid:
        """Workgroups of a launch with this packed argument.

        Raises `ValueError` if one dimension exceeds 32 bits, or the argument has another size.
        """

class Kernel:
    """A function of a loaded module on device `index`."""

    def __init__(
        self,
        library: Library,
        index: int,
        function: int,
        block: int,
        dynamic_lds: int,
        grid: GridFunction,
    ) -> None:
        """A kernel that has been loaded on the device."""
    def launch(self, stream: int, argument: bytes) -> None:
        """Enqueue the kernel.

        Raises `DeviceError` if the stream is another device's.
        """

class Step:
    """Values that all launches of an engine's step on device `index` share.

    `values`: in the order that recordings know them in. `rows`: fewest rows of each tensor.
    """

    def __init__(self, index: int, values: list[int], rows: int) -> None: ...

Numbers = tuple[int, int, int]

class Recording:
    """Launches that follow each other, recorded once and repeated on other tensors."""

    def __init__(
        self,
        launches: list[tuple[Kernel, bytes, list[Numbers], list[Numbers]]],
        tensors: list[tuple[torch.Tensor | None, bool]],
        alignment: int,
    ) -> None:
        """The part of the launches that does not change.

        Args:
            launches: for each launch its kernel and its argument, the addresses in it (number of
                the tensor, byte of the tensor, offset in the argument), and the values of a step in
                it (number of the value, offset in the argument, bytes).
            tensors: for each tensor an example that a repetition's tensor must resemble, and
                whether it must have as many rows. Otherwise it must have at least those of the
                step, or without a step at least as many.
            alignment: bytes that addresses must be multiples of.
        """
    def launch(
        self,
        stream: int,
        tensors: tuple[torch.Tensor | None, ...],
        step: Step | None = None,
        addresses: list[int] | None = None,
    ) -> bool:
        """Enqueue the launches on a stream of the device.

        Args:
            addresses: the tensors' addresses on the device, if they differ from their own.

        Returns:
            False, with nothing enqueued, if a tensor has another layout, dtype or device, an
            address is not aligned, or the step is of another device or has too few values.
        """
