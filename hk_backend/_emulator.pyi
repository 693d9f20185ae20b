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
