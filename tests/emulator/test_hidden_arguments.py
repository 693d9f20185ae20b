"""Hidden arguments have the values of the ABI, and pointers that lead nowhere are named.

Expectations are those of LLVM's AMDGPU usage: "Code Object V5 Metadata", and the offsets of the
implicit arguments there, from the first one on.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from hk_backend import _emulator
from tests.emulator.assembly import (
    PROLOGUE,
    Declared,
    Program,
    assemble,
    kernel_of,
    output,
    together,
)

FIRST = 16
"""Offset of the first hidden argument, behind the two pointers."""
HIDDEN = {
    **{f"block_count_{axis}": (4 * i, 4) for i, axis in enumerate("xyz")},
    **{f"group_size_{axis}": (12 + 2 * i, 2) for i, axis in enumerate("xyz")},
    **{f"remainder_{axis}": (18 + 2 * i, 2) for i, axis in enumerate("xyz")},
    **{f"global_offset_{axis}": (40 + 8 * i, 8) for i, axis in enumerate("xyz")},
    "grid_dims": (64, 2),
    "printf_buffer": (72, 8),
    "hostcall_buffer": (80, 8),
    "multigrid_sync_arg": (88, 8),
    "heap_v1": (96, 8),
    "default_queue": (104, 8),
    "completion_action": (112, 8),
    "dynamic_lds_size": (120, 4),
    "private_base": (192, 4),
    "shared_base": (196, 4),
    "queue_ptr": (200, 8),
}
"""(offset, size) of each hidden argument."""
POINTERS = {
    "queue_ptr": "the queue pointer",
    "printf_buffer": "the printf buffer",
    "hostcall_buffer": "the hostcall buffer",
    "multigrid_sync_arg": "the multigrid argument",
    "heap_v1": "the heap",
    "default_queue": "the default queue",
    "completion_action": "the completion action",
}
EVERY = tuple(Declared(f"hidden_{kind}", FIRST + at, n) for kind, (at, n) in HIDDEN.items())
BYTES = FIRST + 208
APERTURES = 96
"""Dword of the output at which `COPY` leaves the apertures."""

# Workgroup 0 copies all arguments, and the apertures behind them.
COPY = f"""
  s_or_b32 s8, s2, s3
  s_or_b32 s8, s8, s4
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 done
  v_and_b32 v0, 0x3ff, v0
  {PROLOGUE}
  s_mov_b64 s[10:11], src_shared_base
  s_mov_b64 s[12:13], src_private_base
  global_load_dword v2, v1, s[0:1]
  s_waitcnt vmcnt(0)
  global_store_dword v1, v2, s[6:7]
  v_mov_b32 v3, 0
  v_mov_b32 v4, s13
  v_mov_b32 v5, s11
  global_store_dwordx2 v3, v[4:5], s[6:7] offset:{4 * APERTURES}
done:"""
THREE_DIMENSIONS = "".join(f".amdhsa_system_sgpr_workgroup_id_{axis} 1\n" for axis in "yz")


def launch(
    program: Program,
    out: np.ndarray,
    grid: tuple[int, ...] = (1,),
    block: int = 64,
    arch: str = "gfx950",
    **options: Any,
) -> _emulator.Report:
    """Launches a program with its two pointers and no byte more."""
    kernel, machine = kernel_of(program, arch), _emulator.Machine(arch)
    pointers = struct.pack("<2Q", 0, machine.map(out.ctypes.data, out.nbytes, "out"))
    with pytest.raises(ValueError, match="15 bytes of arguments; the kernel takes 16"):
        machine.launch(kernel, grid, [block], pointers[:15])
    return machine.launch(kernel, grid, [block], pointers, **options)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_values_are_those_of_the_abi(arch: str) -> None:
    out, grid, block = output(128), (2, 3, 5), BYTES // 4
    program = Program(COPY, directives=THREE_DIMENSIONS, more=EVERY, lds=512)
    report = launch(program, out, grid, block, arch, dynamic_lds=1024)
    assert not report.findings, [found.message for found in report.findings]
    expected: dict[str, int] = dict.fromkeys(HIDDEN, 0)
    expected |= dict(zip(("block_count_x", "block_count_y", "block_count_z"), grid, strict=True))
    expected |= {"group_size_x": block, "group_size_y": 1, "group_size_z": 1}
    expected |= {"grid_dims": 3, "dynamic_lds_size": 1024}
    private, shared = (int(value) for value in out[APERTURES : APERTURES + 2])
    expected |= {"private_base": private, "shared_base": shared}
    data = out.tobytes()
    found = {
        kind: int.from_bytes(data[FIRST + at : FIRST + at + size], "little")
        for kind, (at, size) in HIDDEN.items()
    }
    addresses = {found.pop(kind) for kind in POINTERS}
    assert found == {kind: expected[kind] for kind in found}
    assert len(addresses - {0}) == len(POINTERS)
    assert private != shared


def test_preloaded_ones() -> None:
    """Preloaded SGPRs get hidden arguments, too: here the number of workgroups along x."""
    prologue = "s_trap 2\n" + 63 * "s_nop 0\n" + "v_lshlrev_b32 v1, 2, v0\n"
    body = f"""{prologue}
      v_mov_b32 v2, s6
      global_store_dword v1, v2, s[4:5]"""
    directives = """.amdhsa_user_sgpr_kernarg_preload_length 5
      .amdhsa_user_sgpr_kernarg_preload_offset 0"""
    more = (Declared("hidden_block_count_x", 16, 4),)
    out = output()
    report = launch(Program(body, directives=directives, more=more), out)
    assert not report.findings, report.findings
    np.testing.assert_array_equal(out, 1)


# --- pointers that lead nowhere -------------------------------------------------------------------

READS = {
    "scalar": "s_load_dword s12, s[8:9], 0x8",
    "vector": "global_load_dword v2, v1, s[8:9]",
    "flat": "v_mov_b32 v2, s8\nv_mov_b32 v3, s9\nflat_load_dword v2, v[2:3]",
    "atomic": "v_mov_b32 v2, 1\nv_mov_b32 v3, 0\nglobal_atomic_add v3, v2, s[8:9]",
}
ASK = PROLOGUE + "s_load_dwordx2 s[8:9], s[0:1], 0x10\ns_waitcnt lgkmcnt(0)\n"
WAIT = "\ns_waitcnt vmcnt(0) lgkmcnt(0)"


def asking(kind: str, body: str) -> Program:
    """A program that loads a hidden pointer into s[8:9]."""
    return Program(ASK + body, more=(Declared(f"hidden_{kind}", FIRST, 8),))


READING = {
    (kind, name): asking(kind, read + WAIT) for kind in POINTERS for name, read in READS.items()
}
ASKING = {kind: asking(kind, "global_store_dword v1, v0, s[6:7]") for kind in POINTERS}
together([*READING.values(), *ASKING.values()])


@pytest.mark.parametrize(("kind", "read"), READING)
def test_reading_through_a_pointer_that_leads_nowhere(kind: str, read: str) -> None:
    report = launch(READING[kind, read], output())
    assert {found.check for found in report.findings} == {"out-of-bounds"}
    said = f"the emulator does not provide {POINTERS[kind]};"
    assert all(said in found.message for found in report.findings), report.findings[0].message


@pytest.mark.parametrize("kind", ASKING)
def test_asking_for_such_a_pointer_is_no_finding(kind: str) -> None:
    out = output()
    report = launch(ASKING[kind], out)
    assert not report.findings, report.findings
    np.testing.assert_array_equal(out, np.arange(64))


QUEUE = ".amdhsa_user_sgpr_queue_ptr 1"
AFTER_QUEUE = PROLOGUE.replace("s[0:1]", "s[2:3]")


def test_the_queue_pointer_in_sgprs() -> None:
    """The queue pointer precedes the arguments' address. Only who reads through it is told."""
    out = output()
    store = AFTER_QUEUE + "global_store_dword v1, v0, s[6:7]"
    report = launch(Program(store, directives=QUEUE), out)
    assert not report.findings, report.findings
    np.testing.assert_array_equal(out, np.arange(64))
    read = "s_load_dwordx2 s[8:9], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)"
    report = launch(Program(read, directives=QUEUE), out)
    (found,) = report.findings
    assert found.check == "out-of-bounds"
    assert "the emulator does not provide the queue pointer;" in found.message


def test_an_address_beside_every_pointer_is_nobody_s() -> None:
    """A stray access is not put down to a pointer: the first page is no absent one's."""
    body = PROLOGUE + "s_mov_b64 s[8:9], 0\ns_load_dword s12, s[8:9], 0x8\ns_waitcnt lgkmcnt(0)"
    (found,) = launch(Program(body), output()).findings
    assert found.check == "out-of-bounds"
    assert "does not provide" not in found.message


def test_the_dispatch_id() -> None:
    """The id of the first dispatch is 0; it follows the arguments' address."""
    out = output()
    body = PROLOGUE + "v_mov_b32 v2, s2\nv_mov_b32 v3, s3\nv_or_b32 v2, v2, v3"
    store = f"{body}\nglobal_store_dword v1, v2, s[6:7]"
    report = launch(Program(store, directives=".amdhsa_user_sgpr_dispatch_id 1"), out)
    assert not report.findings, report.findings
    np.testing.assert_array_equal(out, 0)


# --- unknown ones ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "unknown"),
    [
        ("hidden_block_count_x", "hidden_block_count_w"),
        ("hidden_block_count_x", "hidden_block_countxx"),
        ("hidden_grid_dims", "hidden_grid_dimx"),
        ("hidden_none", "hidden_nine"),
    ],
)
def test_an_unknown_hidden_argument_is_refused_by_name(known: str, unknown: str) -> None:
    """The assembler refuses them, too, so the name is changed in the file."""
    code = assemble(PROLOGUE, more=(Declared(known, FIRST, 8),))
    assert code.count(known.encode()) == 1
    machine = _emulator.Machine("gfx950")

    def run(code: bytes) -> _emulator.Report:
        kernel = _emulator.CodeObject.load(code).kernel("k")
        return machine.launch(kernel, [1], [64], bytes(FIRST))

    assert not run(code).findings
    said = f"kernel 'k' needs the hidden argument '{unknown}', which the emulator does not provide"
    with pytest.raises(ValueError, match=said):
        run(code.replace(known.encode(), unknown.encode()))
