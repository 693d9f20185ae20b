"""The initial state of a wave, the order of waves, refusals, and counters."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.lab.toolchain.elf import Elf
from tests.emulator.assembly import LANES, PROLOGUE, assemble, lines, output, run


def test_preloaded_arguments_enter_256_bytes_later() -> None:
    prologue = "s_trap 2\n" + 63 * "s_nop 0\n" + "v_lshlrev_b32 v1, 2, v0\n"
    out = output()
    directives = """.amdhsa_user_sgpr_kernarg_preload_length 4
      .amdhsa_user_sgpr_kernarg_preload_offset 0"""
    report = run(
        "global_store_dword v1, v0, s[4:5]", None, out, prologue=prologue, directives=directives
    )
    assert not report.findings, report.findings
    np.testing.assert_array_equal(out, LANES)


def test_address_space_is_used_again() -> None:
    """Each region takes two of the 8192 slots of 16 GiB, as long as it is mapped."""
    machine, host = _emulator.Machine("gfx950"), output()
    for _ in range(5000):
        machine.unmap(machine.map(host.ctypes.data, host.nbytes, "host"))


def test_errors_name_argument_and_valid_values() -> None:
    with pytest.raises(ValueError, match="arch 'gfx90a'; valid: gfx942, gfx950"):
        _emulator.Machine("gfx90a")
    machine = _emulator.Machine("gfx942")
    with pytest.raises(ValueError, match="was not returned by map"):
        machine.unmap(4096)
    code = _emulator.CodeObject.load(assemble(PROLOGUE))
    with pytest.raises(KeyError, match="kernel 'x'; valid: k"):
        code.kernel("x")
    with pytest.raises(ValueError, match="compiled for another arch"):
        machine.launch(code.kernel("k"), [1], [64], struct.pack("<2Q", 0, 0))
    machine = _emulator.Machine("gfx950")
    for block, size, lds, why in (
        (64, 8, 0, "8 bytes of arguments; the kernel takes 16"),
        (2048, 16, 0, "block of 2048 work-items; valid: 1 to 1024"),
        (64, 16, 200000, "200000 bytes of LDS; the machine has 163840"),
    ):
        with pytest.raises(ValueError, match=why):
            machine.launch(code.kernel("k"), [1], [block], bytes(size), dynamic_lds=lds)
    for bit, what in ((0, "a private segment buffer"), (10, "waves of 32 lanes")):
        with pytest.raises(ValueError, match=f"kernel 'k' needs {what}, which the emulator does"):
            machine.launch(with_property(bit), [1], [64], bytes(16))


def with_property(bit: int) -> _emulator.Kernel:
    """A kernel with one more of the kernel code properties (LLVM AMDGPU usage, its descriptor)."""
    code = bytearray(assemble(PROLOGUE))
    at = Elf(bytes(code)).sections[".rodata"].offset + 56
    (properties,) = struct.unpack_from("<H", code, at)
    struct.pack_into("<H", code, at, properties | 1 << bit)
    return _emulator.CodeObject.load(bytes(code)).kernel("k")


# --- what is counted ------------------------------------------------------------------------------


def test_counters() -> None:
    body = f"""
      {lines("v_mov_b32 v{}, 0", *range(2, 10))}
      s_nop 1
      v_mfma_f32_16x16x32_bf16 v[12:15], v[2:5], v[6:9], 0
      v_lshlrev_b32 v20, 4, v0
      ds_write_b128 v20, v[2:5]
      ds_read_b128 v[24:27], v20
      s_waitcnt lgkmcnt(0)
      global_store_dword v1, v0, s[6:7]"""
    report = run(body, None, output(128), lds=2048, block=128)
    counters = report.counters
    assert not report.findings, report.findings
    assert counters.matrix_flops == 2 * 2 * 16 * 16 * 32
    assert counters.by_mnemonic["v_mov_b32"] == 2 * 8
    assert counters.by_class["matrix"] == 2
    assert counters.by_class["end"] == 2
    assert counters.instructions == 2 * (3 + 8 + 1 + 1 + 1 + 2 + 1 + 1 + 1)
    assert counters.bytes["lds_read"] == counters.bytes["lds_write"] == 2 * 64 * 16
    assert counters.bytes["global_write"] == 2 * 64 * 4
    assert counters.bytes["global_read"] == 2 * 16
    assert counters.lds_unmodelled == {"ds_write_b128": 2}
    assert list(counters.lds_phases.values()) == [[2 * 4, 2 * 4]]


def test_counters_tell_how_often_each_instruction_was_executed() -> None:
    body = """
      s_mov_b32 s8, 10
    loop:
      s_sub_u32 s8, s8, 1
      s_cmp_lg_u32 s8, 0
      s_cbranch_scc1 loop
      s_cbranch_scc0 end
      s_nop 7
    end:"""
    report = run(body, None, output(), block=192, prologue="")
    times = [1, 10, 10, 10, 1, 1]  # never: s_nop at 20
    pcs = [0, 4, 8, 12, 16, 24]
    assert report.counters.executed == {pc: 3 * n for pc, n in zip(pcs, times, strict=True)}


@pytest.mark.parametrize(
    ("stride", "taken"),
    [(16, 4), (32, 8), (256, 64), (0, 4)],  # 64 banks: all lanes on the same 4; one address: 1 each
)
def test_bank_phases_of_ds_read_b128(stride, taken) -> None:
    body = f"""
      {lines("v_mov_b32 v{}, 0", *range(2, 6))}
      v_mul_u32_u24 v20, {stride}, v0
      ds_write_b128 v20, v[2:5]
      ds_read_b128 v[24:27], v20
      s_waitcnt lgkmcnt(0)"""
    report = run(body, lds=64 * 256, launch={"checks": False})
    assert list(report.counters.lds_phases.values()) == [[taken, 4]]
