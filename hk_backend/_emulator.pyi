"""The GPU emulator (csrc/emulator/bindings.cpp): executes gfx942 and gfx950 code objects.

machine = Machine("gfx950")
query = machine.map(tensor.data_ptr(), tensor.nbytes, "query")  # bounds are these bytes
kernel = CodeObject.load(path.read_bytes()).kernel("attention_prefill_bf16_d128_packed")
report = machine.launch(kernel, grid=[8], block=[512], kernarg=arguments)
assert not report.findings
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

class LoadError(ValueError):
    """The file is not an AMD GPU code object, is truncated, for another arch, or not emulated."""

class KernelArgument:
    name: str
    kind: str
    offset: int
    size: int

class Kernel:
    name: str
    arch: str
    static_lds: int
    scratch: int
    kernarg_size: int
    max_block: int
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    entry: int
    arguments: list[KernelArgument]
    lines: dict[int, str]  # file:line by pc; instructions without a line are missing

class CodeObject:
    arch: str
    kernels: list[Kernel]
    @staticmethod
    def load(elf: bytes, lines: bytes = b"") -> CodeObject: ...
    def kernel(self, name: str) -> Kernel: ...

class Finding:
    check: str
    message: str
    kernel: str
    instruction: str
    other_instruction: str
    pc: int
    other_pc: int
    workgroup: int
    wave: int
    lane: int
    address: int
    source: str

class Counters:
    instructions: int
    by_class: dict[str, int]
    by_mnemonic: dict[str, int]
    executed: dict[int, int]  # executions by pc; unreached instructions are missing
    matrix_flops: int
    bytes: dict[str, int]
    lds_phases: dict[int, list[int]]
    lds_unmodelled: dict[str, int]

class Report:
    findings: list[Finding]
    counters: Counters

Arguments = bytes | Sequence[int | float | bytes | None]
"""Arguments of a kernel: its bytes, or one value for each argument that is not hidden.

An int fills the declared size; a float fills 4 or 8 bytes; bytes are taken as they are; None is a
null pointer. Hidden arguments are the emulator's own.
"""

class Machine:
    arch: str
    def __init__(self, arch: str) -> None: ...
    def map(self, host: int, bytes: int, name: str) -> int: ...
    def unmap(self, address: int) -> None: ...
    def launch(
        self,
        kernel: Kernel,
        grid: Sequence[int],
        block: Sequence[int],
        kernarg: Arguments,
        *,
        dynamic_lds: int = 0,
        seed: int = 0,
        threads: int = 1,
        checks: bool = True,
        max_instructions: int = ...,
        max_findings: int = 20,
    ) -> Report:
        """Run a kernel on a grid of workgroups; `grid` and `block` have one to three sizes.

        Raises `ValueError` for an argument that does not fit, and for a kernel or a launch that
        needs what the emulator lacks.
        """
    def trace(
        self,
        kernel: Kernel,
        grid: Sequence[int],
        block: Sequence[int],
        kernarg: Arguments,
        *,
        workgroups: Sequence[int],
        dynamic_lds: int = 0,
        threads: int = 1,
    ) -> Trace:
        """Run some workgroups of the grid without checks, and record what their waves execute.

        Raises `ValueError` as `launch` does, and `RuntimeError` with the finding if a workgroup
        cannot run to its end.
        """

# The timing model (csrc/emulator/timing).
class Trace:
    registers: int  # number per lane, AGPRs included
    lds_bytes: int  # bytes of LDS of a workgroup
    workgroups: list[int]
    steps: list[int]  # executed instructions of all waves, for each workgroup
    loop: tuple[int, int]  # the loop that executes most: byte offsets in .text; (0, 0): none
    traffic: list[tuple[float, float, float]]
    """Bytes that no other traced workgroup touches, for each workgroup: read, of these by
    non-temporal loads, written."""
    def resident(self, parameters: TimingParameters) -> int:
        """Number of workgroups that fit on a CU at once. Raises `ValueError` if none fits."""

class TimingParameters:
    def __init__(self, arch: str, changes: Mapping[str, float] = {}) -> None:
        """Raises `ValueError` for an unknown arch, an unknown parameter or an impossible value."""
    def __getitem__(self, name: str) -> float: ...

def timing_parameters(
    arch: str,
) -> list[tuple[str, float, float, float, str, str, str, str]]:
    """The model's parameters: (name, value, low, high, certainty, unit, what, source) of each."""

class WorkgroupTime:
    trace: int
    slot: int
    start: int
    end: int
    loop_start: int  # clocks of the loop's first and last issue; 0: there is no loop
    loop_end: int
    wave_clocks: int  # clocks from `start` to each wave's end, summed over waves

class CuTime:
    clocks: int
    workgroups: list[WorkgroupTime]
    busy: dict[str, float]  # clocks by unit; units of SIMDs are averaged over the four
    bytes: dict[str, float]
    matrix_flops: float  # FLOPs executed, useful or not

def replay(
    trace: Trace,
    parameters: TimingParameters,
    slots: Sequence[Sequence[int]],
    starts: Sequence[int],
    active: int,
    clock_ghz: float,
    loop: tuple[int, int] = (0, 0),
    events_within: tuple[int, int] = (0, 0),
    places: Sequence[Sequence[tuple[int, int]]] = (),
    traced: bool = False,
    gaps: Sequence[int] = (),
) -> CuTime:
    """Replay one CU, whose slots each run traced workgroups one after another.

    Each slot begins at its clock in `starts`, and `active` CUs share the memory. `loop`: byte
    offsets in .text. `events_within`: window of clocks in which events are kept. `places`: SIMD and
    delay in clocks of each wave, by trace; without them waves go round the SIMDs. `traced`: a trace
    of hardware is replayed, with what only happens as a launch begins, and with a limit of what is
    in flight. `gaps`: clocks from the end of a slot's workgroup to each trace's start; without them
    `workgroup_start`. Raises `ValueError` for a missing or impossible slot, place or gap.
    """

def recorded_trace(kernel: Kernel, workgroups: Sequence[Sequence[NDArray[np.uint32]]]) -> Trace:
    """Make a trace of waves that were recorded elsewhere.

    Each wave is an array [steps, 4]: pc, and the facts taken, needed and shared of a step
    (csrc/emulator/machine/trace.hpp). Raises `ValueError` for a pc without an instruction, a fact
    beyond 65535, and a wave without s_endpgm at its end.
    """

InstructionTime = tuple[str, int, int, dict[str, int]]
"""Times of an instruction: its unit, executions, clocks of issue, and stalled clocks by reason."""

def instruction_times(trace: Trace, time: CuTime) -> dict[int, InstructionTime]:
    """Times of each instruction by pc, summed over all waves."""

def unit_names() -> list[str]:
    """Names of the units, by number."""

def stall_names() -> list[str]:
    """Reasons for which a wave waits, by number."""

def wave_events(trace: Trace, time: CuTime) -> NDArray[Any]:
    """Events of waves in `events_within`, in the order of their ends.

    Fields: workgroup (index in `workgroups`), wave, simd, pc, start, clocks, waits (true: the wave
    waits, false: it issues), what (number of the stall, or of the unit).
    """

def unit_events(time: CuTime) -> NDArray[Any]:
    """Spans in `events_within` in which units worked: unit, simd, start, clocks.

    The LDS and the memory path belong to the CU: their simd is 0.
    """

class DeviceTime:
    clocks: float
    busy_share: float
    places: NDArray[np.uint32]  # for each workgroup: CU * slots + slot

def schedule(
    lengths: NDArray[np.float64], slots: int, parameters: TimingParameters
) -> DeviceTime: ...
def disassemble(text: bytes, arch: str) -> list[tuple[int, str]]: ...
def opcodes(arch: str) -> list[tuple[str, int, str, bool]]:
    """Opcodes of an arch: (format, number, mnemonic, whether the emulator executes it)."""

# Interface for tests: runs one instruction on registers given as arrays, without a machine.
class Unsupported(NotImplementedError):
    """The instruction is known, but this form of it is not emulated."""

def has_semantics(mnemonic: str, arch: str) -> bool: ...
def execute(
    mnemonic: str,
    arch: str,
    sgpr: NDArray[np.uint32],
    vgpr: NDArray[np.uint32],
    dst: Sequence[tuple[Any, ...]],
    src: Sequence[tuple[Any, ...]],
    mode: int,
    scc: bool,
    fields: Mapping[str, int],
) -> tuple[bool, int]: ...
