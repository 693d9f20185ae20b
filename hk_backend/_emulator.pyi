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
    """Not an AMD GPU code object, truncated, for another arch, or with what is not emulated."""

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
    lines: dict[int, str]  # by pc: file:line; what has none is not there

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
    executed: dict[int, int]  # pc: how often; what was never reached is not there
    matrix_flops: int
    bytes: dict[str, int]
    lds_phases: dict[int, list[int]]
    lds_unmodelled: dict[str, int]

class Report:
    findings: list[Finding]
    counters: Counters

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
        kernarg: bytes,
        *,
        dynamic_lds: int = 0,
        seed: int = 0,
        threads: int = 1,
        checks: bool = True,
        max_instructions: int = ...,
        max_findings: int = 20,
    ) -> Report: ...
    def trace(
        self,
        kernel: Kernel,
        grid: Sequence[int],
        block: Sequence[int],
        kernarg: bytes,
        *,
        workgroups: Sequence[int],
        dynamic_lds: int = 0,
        threads: int = 1,
    ) -> Trace:
        """Runs some workgroups of the grid, without checks, and records what their waves execute.
        Raises `RuntimeError` with the finding if one cannot go on."""

# The timing model (csrc/emulator/timing).
class Trace:
    registers: int  # per lane, AGPRs included
    lds_bytes: int  # of a workgroup
    workgroups: list[int]
    steps: list[int]  # per workgroup: instructions of all its waves
    loop: tuple[int, int]  # byte offsets in .text, of most instructions executed; (0, 0): none
    def resident(self, parameters: TimingParameters) -> int:
        """Workgroups that fit on a CU at once. Raises `ValueError` if none does."""

class TimingParameters:
    def __init__(self, arch: str, changes: Mapping[str, float] = {}) -> None:
        """Raises `ValueError` for an unknown arch, parameter or an impossible value."""
    def __getitem__(self, name: str) -> float: ...

def timing_parameters(
    arch: str,
) -> list[tuple[str, float, float, float, str, str, str, str]]:
    """(name, value, low, high, certainty, unit, what, source) of every row."""

class WorkgroupTime:
    trace: int
    slot: int
    start: int
    end: int
    loop_start: int  # first and last issue of what was marked as the loop; 0: none
    loop_end: int
    wave_clocks: int  # from `start` to the end of each wave, all together

class CuTime:
    clocks: int
    workgroups: list[WorkgroupTime]
    busy: dict[str, float]  # clocks by unit; those of SIMDs averaged over the four
    bytes: dict[str, float]
    matrix_flops: float  # executed, useful or not

def replay(
    trace: Trace,
    parameters: TimingParameters,
    slots: Sequence[Sequence[int]],
    starts: Sequence[int],
    active: int,
    clock_ghz: float,
    loop: tuple[int, int] = (0, 0),
    events_within: tuple[int, int] = (0, 0),
) -> CuTime:
    """One CU whose slots each run traced workgroups one after another, the first from `starts` on,
    while `active` CUs share the memory. `loop`: byte offsets in .text; `events_within`: clocks."""

InstructionTime = tuple[str, int, int, dict[str, int]]
"""Its unit; how often it was executed; clocks in which it issued; clocks stalled, by reason."""

def instruction_times(trace: Trace, time: CuTime) -> dict[int, InstructionTime]:
    """By pc, all waves together."""

def unit_names() -> list[str]:
    """By number."""

def stall_names() -> list[str]:
    """Why a wave waits, by number."""

def wave_events(trace: Trace, time: CuTime) -> NDArray[Any]:
    """What waves did in `events_within`, in the order in which it was over: workgroup (index in
    `workgroups`), wave, simd, pc, start, clocks, waits (or issues), what (a stall, or a unit)."""

def unit_events(time: CuTime) -> NDArray[Any]:
    """When units worked in `events_within`: unit, simd, start, clocks. The LDS and the memory path
    are the CU's: their simd is 0."""

class DeviceTime:
    clocks: float
    busy_share: float
    places: NDArray[np.uint32]  # of each workgroup: CU * slots + slot

def schedule(
    lengths: NDArray[np.float64], slots: int, parameters: TimingParameters
) -> DeviceTime: ...
def disassemble(text: bytes, arch: str) -> list[tuple[int, str]]: ...
def opcodes(arch: str) -> list[tuple[str, int, str, bool]]:
    """(format, number, mnemonic, whether it can be executed) of every opcode of an arch."""

# For tests: one instruction's handler on registers given as arrays, without decoder or machine.
class Unsupported(NotImplementedError):
    """An instruction whose mnemonic is known, in a form that is not emulated."""

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
