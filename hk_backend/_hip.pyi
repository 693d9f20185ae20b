"""The launcher (csrc/hip): kernels on a HIP runtime that this process has mapped.

Handles of streams, modules and functions are integers; stream 0 is the null stream. A HIP call that
fails raises `HipError` (hk_backend/devices/hip/library.py), a runtime that cannot be used
`DeviceError`.
"""

import torch

from hk_backend.kernels.grid import Grid, Program

def runtime_of(user: str) -> str:
    """The path of the HIP library that the mapped library `user` (a path) calls, by `dladdr`.

    Raises `DeviceError`: `user` is not mapped, or uses none.
    """

def read_tensors_of(tensor: type[torch.Tensor]) -> bool:
    """Read tensors through this class's DLPack exchange table from now on; False: it has none."""

class Library:
    """A HIP library's functions; every one but `synchronise` only enqueues."""

    path: str
    def __init__(self, path: str, load: bool) -> None:
        """`load`: whether it may be mapped now. Raises `DeviceError`: it lacks a function."""
    def device_count(self) -> int: ...
    def arch(self, index: int) -> str:
        """The arch of device `index` without its features: `gfx950`."""
    def compute_units(self, index: int) -> int:
        """Of device `index`; in a partition mode it has only some of its GPU's."""
    def current_device(self) -> int:
        """Of this thread."""
    def set_current_device(self, index: int) -> None: ...
    def stream_device(self, stream: int) -> int:
        """The device of a stream (0: the current device)."""
    def is_capturing(self, stream: int) -> bool:
        """Whether it records work in a graph instead of running it; also true of the null stream
        while that must not be used, since a stream captures that it would wait for.
        """
    def load_image(self, image: bytes) -> int:
        """The module of a code object in memory, which HIP trusts to be whole."""
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

class GridProgram:
    """A grid formula, for tests: a `Kernel` has its own."""

    names: list[str]
    def __init__(self, program: Program) -> None: ...
    def evaluate(self, values: dict[str, int]) -> list[int]:
        """x, y and z. Raises `ValueError`: negative, past 32 bits, or a division by zero."""

class Kernel:
    """A function of a loaded module on device `index`."""

    def __init__(
        self,
        library: Library,
        index: int,
        compute_units: int,
        function: int,
        block: int,
        dynamic_lds: int,
        grid: Program,
        constants: dict[str, int],
    ) -> None:
        """`compute_units`: of the device. `constants`: names of the grid's formula whose values are
        the kernel's own."""

def launch(kernels: list[Kernel], stream: int, sizes: dict[str, int], argument: bytes) -> None:
    """Enqueue one of `kernels`, which compute the same with tiles of other sizes.

    Args:
        kernels: of one device, the largest tile first. Enqueued is the first whose grid gives every
            compute unit two workgroups, or the last.
        sizes: the names of the grids' formulas that are no constants.

    Raises `DeviceError`: the stream is another device's; `ValueError`: a name without a value.
    """

class Step:
    """What the launches of an engine's step share, on device `index`.

    `values`: in the order of `Prepared`'s `step_places`; `rows`: that each tensor has, at least.
    """

    def __init__(self, index: int, values: list[int], rows: int) -> None: ...

class Prepared:
    """A launch that is made once and repeated with other addresses."""

    def __init__(
        self,
        kernels: list[Kernel],
        argument: bytes,
        step_places: list[tuple[int, int]],
        step_grid: dict[str, int],
        sizes: dict[str, int],
        tensors: list[tuple[torch.Tensor, int, bool]],
        alignment: int,
    ) -> None:
        """What of a launch does not change.

        Args:
            kernels: as those of `launch`; each launch chooses anew.
            argument: the struct, in which all but a step's values and the tensors' addresses is
                in place.
            step_places: (offset, bytes) in `argument` of each value of a step; (0, 0): nowhere.
            step_grid: the names of the grids' formulas that are values of a step, by their index;
                `sizes`: the others.
            tensors: (what the launch's tensor must be like, offset of its address, whether it has
                just as many rows); else at least those of the step. `alignment`: of addresses.
        """
    def launch(
        self,
        step: Step,
        stream: int,
        tensors: tuple[torch.Tensor, ...],
        addresses: list[int] | None = None,
    ) -> bool:
        """Enqueue it on a stream of the device.

        Args:
            addresses: where the device finds the tensors, if not where they say.

        Returns:
            False, and nothing has been done: a tensor of another layout, dtype or device, an
            address that is not aligned, or a step of another device.
        """

class Repeated:
    """Launches that follow each other, made once and repeated on other tensors."""

    def __init__(
        self,
        launches: list[tuple[Kernel, dict[str, int], bytes, list[tuple[int, int, int]]]],
        tensors: tuple[torch.Tensor | None, ...],
        exact: int,
        alignment: int,
    ) -> None:
        """What of them does not change.

        Args:
            launches: kernel, the names of its grid's formula, its argument, and the addresses in
                it: (number of the tensor, byte of the tensor, offset in the argument).
            tensors: what those of each launch must be like; the first `exact` of them must have
                just as many rows, the others at least. `alignment`: of their addresses.
        """
    def launch(
        self,
        stream: int,
        tensors: tuple[torch.Tensor | None, ...],
        addresses: list[int] | None = None,
    ) -> bool:
        """Enqueue them on a stream of the device; as `Prepared.launch`, without a step."""
