"""Every atomic instruction: the memory that it leaves, and its result."""

from __future__ import annotations

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from hk_backend import _emulator
from tests.emulator.assembly import PROLOGUE, Program, raw_buffer, run_clean, together, vgprs
from tests.emulator.values import edges

LANES = 64
FLOATS = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16,
}  # fmt: skip
Statement = Callable[[int, int, int, int], int]


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


# Functions of memory, the first and the second data, and the width.
INTEGERS: dict[str, Statement] = {
    "add": lambda m, d, _, bits: m + d,
    "sub": lambda m, d, _, bits: m - d,
    "rsub": lambda m, d, _, bits: d - m,
    "inc": lambda m, d, _, bits: 0 if m >= d else m + 1,
    "dec": lambda m, d, _, bits: d if m == 0 or m > d else m - 1,
    "smin": lambda m, d, _, bits: d if signed(d, bits) < signed(m, bits) else m,
    "smax": lambda m, d, _, bits: d if signed(d, bits) > signed(m, bits) else m,
    "umin": lambda m, d, _, bits: min(m, d),
    "umax": lambda m, d, _, bits: max(m, d),
    "and": lambda m, d, _, bits: m & d,
    "or": lambda m, d, _, bits: m | d,
    "xor": lambda m, d, _, bits: m ^ d,
    "mskor": lambda m, d, e, bits: m & ~d | e,
    "swap": lambda m, d, _, bits: d,
    "cmpswap": lambda m, d, e, bits: e if m == d else m,  # compared, new
}
NAMES = {"wrxchg": "swap", "cmpst": "cmpswap", "min_i": "smin", "max_i": "smax",
         "min": "umin", "max": "umax"}  # fmt: skip


def operation(mnemonic: str) -> tuple[str, str | None, int]:
    """(operation, float type, bits) of ds_min_rtn_i32, global_atomic_add_x2, ..."""
    short = re.sub(r"^(ds|(global|buffer|flat)_atomic)_|_rtn", "", mnemonic)
    kind = re.search(r"_(bf16|f16|f32|f64)$", short)
    if kind:
        bits = 64 if kind[1] == "f64" else 32
        name = short[: kind.start()]
        return "cmpswap" if name == "cmpst" else name, kind[1], bits
    bits = 64 if short.endswith(("_x2", "64")) else 32
    name = re.sub(r"_x2$|(_[bu]|(?<=_[iu]))?(32|64)$", "", short)
    return NAMES.get(name, name), None, bits


ATOMIC = re.compile(
    r"(global|buffer|flat)_atomic_\w+"
    r"|ds_(add|sub|rsub|inc|dec|min|max|and|or|xor|mskor|cmpst|wrxchg|pk_add)_\w+"
)
MNEMONICS = [
    m for _, _, m, executed in _emulator.opcodes("gfx950") if executed and ATOMIC.fullmatch(m)
]


def returns(mnemonic: str) -> bool:
    """LDS has opcodes of its own that return nothing."""
    return not mnemonic.startswith("ds_") or "_rtn" in mnemonic


def floats(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Values [64, 2], as dwords, of eight bits at several places: sums are rounded, many from
    halfway."""
    shape = (LANES, 64 // (8 * np.dtype(FLOATS[kind]).itemsize))
    values = (rng.integers(-255, 256, shape) * 2.0 ** rng.integers(-8, 7, shape)).astype(
        FLOATS[kind]
    )
    return np.ascontiguousarray(values).view(np.uint32).reshape(LANES, -1)


def words(mnemonic: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Memory, first and second data: [64, 2] dwords each. Some compare equal."""
    name, kind, bits = operation(mnemonic)
    if kind:
        memory, data, new = (floats(kind, rng) for _ in range(3))
    else:
        memory, data, new = (
            edges("u64" if bits == 64 else "u32", LANES, rng).view(np.uint32).reshape(LANES, 2)
            for _ in range(3)
        )
    if name == "cmpswap":
        data = np.where(np.arange(LANES)[:, None] % 2, memory, data)
    return memory, data, new


def expected(mnemonic: str, memory: np.ndarray, data: np.ndarray, new: np.ndarray) -> np.ndarray:
    name, kind, bits = operation(mnemonic)
    result = memory.copy()
    dwords = bits // 32
    for lane in range(LANES):
        m, d, e = (x[lane, :dwords].copy() for x in (memory, data, new))
        if kind and name != "cmpswap":
            a, b = m.view(FLOATS[kind]), d.view(FLOATS[kind])
            pick = {"min": np.minimum, "max": np.maximum}.get(name, np.add)
            result[lane, :dwords] = pick(a, b).astype(FLOATS[kind]).view(np.uint32)
            continue
        m, d, e = (int(x.view(f"u{bits // 8}")[0]) for x in (m, d, e))
        value = INTEGERS[name](m, d, e, bits) % (1 << bits)
        result[lane, :dwords] = np.array([value], np.uint64).view(np.uint32)[:dwords]
    return result


def program(space: str, mnemonic: str) -> str:
    """v[2:3] memory, v[4:5] and v[6:7] data, all loaded from s[4:5]; memory's place is s[6:7]."""
    name, _, bits = operation(mnemonic)
    n = bits // 32
    two = name in ("cmpswap", "mskor")
    load = """
      v_mul_u32_u24 v1, 24, v0
      v_lshlrev_b32 v10, 4, v0
      global_load_dwordx2 v[2:3], v1, s[4:5]
      global_load_dwordx2 v[4:5], v1, s[4:5] offset:8
      global_load_dwordx2 v[6:7], v1, s[4:5] offset:16
      v_mov_b32 v8, 0
      v_mov_b32 v9, 0
      s_waitcnt vmcnt(0)
    """
    if space == "ds":
        second = f", {vgprs(6, n)}" if two else ""
        result = f"{vgprs(8, n)}, " if returns(mnemonic) else ""
        return (
            load
            + f"""
          ds_write_b64 v10, v[2:3]
          {mnemonic} {result}v10, {vgprs(4, n)}{second}
          ds_read_b64 v[2:3], v10
          s_waitcnt lgkmcnt(0)
          global_store_dwordx2 v10, v[2:3], s[6:7]
          global_store_dwordx2 v10, v[8:9], s[6:7] offset:8"""
        )
    # the new value first, then the compared one; a buffer's result replaces the data
    order = [6, 4] if two else [4]
    gather = "".join(
        f"v_mov_b32 v{12 + n * place + i}, v{first + i}\n"
        for place, first in enumerate(order)
        for i in range(n)
    )
    data, result = vgprs(12, n * len(order)), vgprs(8, n)
    instruction = {
        "global": f"{mnemonic} {result}, v10, {data}, s[6:7] sc0",
        "flat": f"{mnemonic} {result}, v[18:19], {data} sc0",
        "buffer": f"{mnemonic} {data}, v10, s[8:11], 0 offen sc0\n s_waitcnt vmcnt(0)\n"
        + "".join(f"v_mov_b32 v{8 + i}, v{12 + i}\n" for i in range(n)),
    }[space]
    return (
        load
        + f"""
      v_mov_b32 v19, s7
      v_add_co_u32 v18, vcc, s6, v10
      s_nop 1
      v_addc_co_u32 v19, vcc, 0, v19, vcc
      {raw_buffer(1024, 6)}
      {gather}
      global_store_dwordx2 v10, v[2:3], s[6:7]
      s_waitcnt vmcnt(0)
      {instruction}
      s_waitcnt vmcnt(0) lgkmcnt(0)
      global_store_dwordx2 v10, v[8:9], s[6:7] offset:8"""
    )


PROGRAMS = {name: program(name.split("_", maxsplit=1)[0], name) for name in MNEMONICS}
together(Program(PROLOGUE + text, lds=1024) for text in PROGRAMS.values())


@pytest.mark.parametrize("mnemonic", MNEMONICS)
def test_atomic(mnemonic: str) -> None:
    rng = np.random.default_rng(sum(mnemonic.encode()))
    memory, data, new = words(mnemonic, rng)
    inputs = np.ascontiguousarray(np.stack([memory, data, new], axis=1))
    out = np.zeros((LANES, 4), np.uint32)
    run_clean(PROGRAMS[mnemonic], inputs, out, lds=1024)
    dwords = operation(mnemonic)[2] // 32
    np.testing.assert_array_equal(out[:, :2], expected(mnemonic, memory, data, new))
    returned = memory[:, :dwords] if returns(mnemonic) else np.zeros((LANES, dwords))
    np.testing.assert_array_equal(out[:, 2 : 2 + dwords], returned)
