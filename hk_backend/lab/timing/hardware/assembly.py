"""A code object of a trace's listing, so that the emulator knows its instructions.

The trace has the text of each instruction, as LLVM's disassembler prints it. Assembled again, each
must lie where the trace says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hk_backend.lab.timing.hardware.dispatch import DispatchError, Line
from hk_backend.lab.toolchain.compiler import Toolchain
from hk_backend.lab.toolchain.elf import Elf

if TYPE_CHECKING:
    from hk_backend import _emulator

SYMBOL = "traced"
SOURCE = """
.text
.globl {symbol}
.p2align 8
.type {symbol},@function
{symbol}:
{text}
.size {symbol}, .-{symbol}
.rodata
.p2align 6
.amdhsa_kernel {symbol}
  .amdhsa_next_free_vgpr 512
  .amdhsa_accum_offset 256
  .amdhsa_next_free_sgpr 96
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: {symbol}
    .symbol: {symbol}.kd
    .kernarg_segment_size: 0
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 96
    .vgpr_count: 512
    .agpr_count: 256
    .max_flat_workgroup_size: 1024
    .args: []
...
.end_amdgpu_metadata
"""
"""The kernel may use every register: the listing does not say how many it has."""


def kernel_of(lines: Sequence[Line], arch: str, tools: Toolchain) -> _emulator.Kernel:
    """Assemble a listing.

    Raises:
        DispatchError: the assembler refuses a line, or an instruction has another length than in
            the trace.
        ToolchainError: the assembler is missing.
    """
    from hk_backend import _emulator

    instructions = [line for line in lines if not line.is_label]
    text = "\n".join(f"  {line.text}" for line in instructions)
    with tempfile.TemporaryDirectory() as folder:
        source, code_object = Path(folder) / "traced.s", Path(folder) / "traced.co"
        source.write_text(SOURCE.format(symbol=SYMBOL, text=text))
        flags = ("--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-nogpulib")
        tools.run("clang++", *flags, "-x", "assembler", source, "-o", code_object)
        data = code_object.read_bytes()
    _check_places(data, arch, instructions)
    return _emulator.CodeObject.load(data).kernel(SYMBOL)


def _check_places(code_object: bytes, arch: str, instructions: Sequence[Line]) -> None:
    from hk_backend import _emulator

    assembled = _emulator.disassemble(Elf(code_object).symbol_bytes(SYMBOL), arch)
    first = instructions[0].pc
    for line, (pc, _) in zip(instructions, assembled, strict=True):
        if line.pc - first != pc:
            raise DispatchError(
                f"{line.text!r} lies at {pc} when assembled, and at {line.pc - first} in the trace"
            )
