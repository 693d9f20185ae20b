"""Hand-written programs for the emulator: assembled by LLVM, run on numpy buffers."""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hk_backend import _emulator

MC, LLD = shutil.which("llvm-mc-22"), shutil.which("ld.lld-22")
needs_llvm = pytest.mark.skipif(
    not (MC and LLD), reason="llvm-mc-22 or ld.lld-22 is not installed: nothing to assemble with"
)

# s[0:1] the arguments, s2 the workgroup; then s[4:5] input, s[6:7] output, v1 = 4 * work-item.
PROLOGUE = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
"""

TEMPLATE = """
.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
.text
.globl k
.p2align 8
.type k,@function
k:
{body}
  s_endpgm
.Lend:
.size k, .Lend-k
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size {scratch}
  .amdhsa_kernarg_size 16
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_accum_offset {accum_offset}
  .amdhsa_next_free_sgpr {sgprs}
  .amdhsa_float_denorm_mode_32 3
  {directives}
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--{arch}
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: {scratch}
    .wavefront_size: 64
    .sgpr_count: {sgprs}
    .vgpr_count: {vgprs}
    .agpr_count: 0
    .max_flat_workgroup_size: 1024
    .args:
      - {{.address_space: global, .offset: 0, .size: 8, .value_kind: global_buffer}}
      - {{.address_space: global, .offset: 8, .size: 8, .value_kind: global_buffer}}
.end_amdgpu_metadata
"""


@functools.cache
def assemble(
    body: str,
    arch: str = "gfx950",
    lds: int = 0,
    scratch: int = 0,
    vgprs: int = 320,
    accum_offset: int = 256,
    sgprs: int = 96,
    directives: str = "",
) -> bytes:
    """The code object of one kernel `k` with two pointers as arguments."""
    text = TEMPLATE.format(**locals())
    with tempfile.TemporaryDirectory() as folder:
        source, obj, out = (Path(folder) / name for name in ("k.s", "k.o", "k.co"))
        source.write_text(text)
        assert MC
        assert LLD
        command = [MC, "-triple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-filetype=obj"]
        command += ["-dwarf-version=5", str(source), "-o", str(obj)]
        subprocess.run(command, check=True, capture_output=True)
        subprocess.run([LLD, "-shared", str(obj), "-o", str(out)], check=True, capture_output=True)
        return out.read_bytes()


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
    code = assemble(prologue + body, arch=arch, **assembly)
    kernel = _emulator.CodeObject.load(code).kernel("k")
    machine = _emulator.Machine(arch)
    addresses = []
    for array, name in ((data, "data"), (out, "out")):
        if array is None:
            addresses.append(0)
        else:
            addresses.append(machine.map(array.ctypes.data, array.nbytes, name))
    arguments = struct.pack("<2Q", *addresses)
    return machine.launch(kernel, [grid], [block], arguments, **(launch or {}))


def checks(report: _emulator.Report) -> set[str]:
    return {finding.check for finding in report.findings}


def text_of(elf: bytes) -> bytes:
    """The .text section of a 64-bit little-endian ELF file."""
    table, entry_size, count, names = (
        struct.unpack_from("<Q", elf, 40)[0], *struct.unpack_from("<3H", elf, 58))  # fmt: skip
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry_size) for i in range(count)]
    strings = headers[names][4]
    for name, _, _, _, offset, size, *_ in headers:
        if elf[strings + name :].split(b"\0")[0] == b".text":
            return elf[offset : offset + size]
    raise AssertionError("no .text")
