"""Hand-written programs for the emulator: assembled by LLVM, run on numpy buffers."""

from __future__ import annotations

import functools
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hk_backend import _emulator
from hk_backend.lab.toolchain.elf import Elf

TRIPLE = "amdgcn-amd-amdhsa"
MC, LLD = ("llvm-mc-22", f"-triple={TRIPLE}"), "ld.lld-22"
LANES = np.arange(64, dtype=np.uint32)

# s[0:1] the arguments, s2 the workgroup; then s[4:5] input, s[6:7] output, v1 = 4 * work-item.
PROLOGUE = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
"""

CODE = """
.text
.globl {name}
.p2align 8
.type {name},@function
{name}:
{text}
  s_endpgm
.L{name}_end:
.size {name}, .L{name}_end-{name}
.rodata
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size {scratch}
  .amdhsa_kernarg_size {kernarg_size}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_accum_offset {accum_offset}
  .amdhsa_next_free_sgpr {sgprs}
  .amdhsa_float_denorm_mode_32 3
  {directives}
.end_amdhsa_kernel
"""
METADATA = """
  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: {kernarg_size}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: {scratch}
    .wavefront_size: 64
    .sgpr_count: {sgprs}
    .vgpr_count: {vgprs}
    .agpr_count: 0
    .max_flat_workgroup_size: 1024
    .args: [{arguments}]
"""


def lines(text: str, *numbers: int) -> str:
    """The text for each number."""
    return "".join(f"{text.format(number)}\n" for number in numbers)


def vgprs(first: int, count: int = 1) -> str:
    """An operand of `count` VGPRs."""
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def raw_buffer(size: int, base: int = 4) -> str:
    """Instructions that make s[8:11] a raw buffer of `size` bytes at s[base:base+1]."""
    return f"""
      s_mov_b32 s8, s{base}
      s_mov_b32 s9, s{base + 1}
      s_mov_b32 s10, {size}
      s_mov_b32 s11, 0x20000
    """


@dataclass(frozen=True)
class Declared:
    """An argument in a kernel's metadata."""

    kind: str
    offset: int
    size: int
    name: str = ""

    @property
    def end(self) -> int:
        return self.offset + self.size

    def __str__(self) -> str:
        name = f".name: {self.name}, " if self.name else ""
        return f"{{{name}.offset: {self.offset}, .size: {self.size}, .value_kind: {self.kind}}}"


TWO_POINTERS = (Declared("global_buffer", 0, 8), Declared("global_buffer", 8, 8))


@dataclass(frozen=True)
class Program:
    """A kernel, by default with two pointers as its first arguments."""

    body: str
    lds: int = 0
    scratch: int = 0
    vgprs: int = 320
    accum_offset: int = 256
    sgprs: int = 96
    directives: str = ""
    first: tuple[Declared, ...] = TWO_POINTERS
    more: tuple[Declared, ...] = ()
    """Arguments after the first ones."""

    def fill(self, template: str, name: str) -> str:
        """The template with this program's values; labels of programs do not meet."""
        labels = "|".join(re.findall(r"^\s*([a-z]\w*):", self.body, re.M))
        text = re.sub(rf"\b({labels})\b", rf"\1_{name}", self.body) if labels else self.body
        every = (*self.first, *self.more)
        size = -(-max(argument.end for argument in every) // 4) * 4  # as LLVM rounds it
        listed = ", ".join(map(str, every))
        return template.format(
            name=name, text=text, kernarg_size=size, arguments=listed, **vars(self)
        )


_together: dict[Program, tuple[Program, ...]] = {}


def together(programs: Iterable[Program]) -> None:
    """Assemble all of these in one call when the first of them is run: a call takes as long as a
    hundred programs."""
    group = tuple(dict.fromkeys(programs))
    _together.update(dict.fromkeys(group, group))


def names_of(programs: Iterable[Program]) -> list[tuple[str, Program]]:
    """Names for the programs of a code object, beginning with `k`."""
    return [(f"k{i or ''}", program) for i, program in enumerate(programs)]


@functools.cache
def assemble_all(programs: tuple[Program, ...], arch: str, dwarf: int = 5) -> bytes:
    """The code object of these programs. `dwarf`: version of its line tables, if it has any."""
    named = names_of(programs)
    text = f'.amdgcn_target "amdgcn-amd-amdhsa--{arch}"\n'
    text += "".join(program.fill(CODE, name) for name, program in named)
    text += ".amdgpu_metadata\namdhsa.version: [1, 2]\namdhsa.kernels:"
    text += "".join(program.fill(METADATA, name) for name, program in named)
    text += f"amdhsa.target: amdgcn-amd-amdhsa--{arch}\n.end_amdgpu_metadata\n"
    with tempfile.TemporaryDirectory() as folder:
        source, obj, out = (Path(folder) / name for name in ("k.s", "k.o", "k.co"))
        source.write_text(text)
        options = (f"-mcpu={arch}", "-filetype=obj", f"-dwarf-version={dwarf}", source, "-o", obj)
        subprocess.run([*MC, *options], check=True, stdout=subprocess.PIPE)
        subprocess.run([LLD, "-shared", obj, "-o", out], check=True)
        return out.read_bytes()


def assemble(body: str, arch: str = "gfx950", dwarf: int = 5, **options: Any) -> bytes:
    """The code object of one kernel `k`."""
    return assemble_all((Program(body, **options),), arch, dwarf)


@functools.cache
def _kernels(programs: tuple[Program, ...], arch: str) -> dict[Program, _emulator.Kernel]:
    code = _emulator.CodeObject.load(assemble_all(programs, arch))
    return {program: code.kernel(name) for name, program in names_of(programs)}


@functools.cache
def kernel_of(program: Program, arch: str) -> _emulator.Kernel:
    return _kernels(_together.get(program, (program,)), arch)[program]


def run(
    body: str,
    data: np.ndarray | None = None,
    out: np.ndarray | None = None,
    *,
    prologue: str = PROLOGUE,
    arch: str = "gfx950",
    grid: int = 1,
    block: int = 64,
    launch: dict[str, Any] | None = None,
    **assembly: Any,
) -> _emulator.Report:
    """Runs a program; `data` is mapped at s[4:5] and `out` at s[6:7]."""
    kernel = kernel_of(Program(prologue + body, **assembly), arch)
    machine = _emulator.Machine(arch)
    addresses = []
    for array, name in ((data, "data"), (out, "out")):
        if array is None:
            addresses.append(0)
        else:
            addresses.append(machine.map(array.ctypes.data, array.nbytes, name))
    arguments = struct.pack("<2Q", *addresses)
    return machine.launch(kernel, [grid], [block], arguments, **(launch or {}))


def run_clean(
    body: str, data: np.ndarray | None = None, out: np.ndarray | None = None, **options: Any
) -> _emulator.Report:
    """Runs a program that must be free of findings."""
    report = run(body, data, out, **options)
    assert not report.findings, [f.message for f in report.findings]
    return report


def output(dwords: int = 64) -> np.ndarray:
    return np.full(dwords, 0xDEADBEEF, dtype=np.uint32)


def result(
    body: str, data: np.ndarray | None = None, dwords: int = 64, **options: Any
) -> np.ndarray:
    """Runs a program that must be free of findings, and returns what it writes."""
    out = output(dwords)
    run_clean(body, data, out, **options)
    return out


def checks(report: _emulator.Report) -> set[str]:
    return {finding.check for finding in report.findings}


def text_of(elf: bytes) -> bytes:
    """The .text section of a code object."""
    section = Elf(elf).sections[".text"]
    return elf[section.offset : section.offset + section.size]
