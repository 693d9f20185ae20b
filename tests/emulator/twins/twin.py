"""A correct program and its broken twin, which differs in one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hk_backend import _emulator
from tests.emulator.assembly import run

# s[8:11]: a raw buffer of the 1024 bytes at s[4:5]
DESCRIPTOR = """
  s_mov_b32 s8, s4
  s_mov_b32 s9, s5
  s_movk_i32 s10, 0x400
  s_mov_b32 s11, 0x20000
"""
COPY_TO_LDS = f"""{DESCRIPTOR}s_mov_b32 m0, 0
        s_nop 0
        buffer_load_dword v1, s[8:11], 0 offen lds
        """
ZEROS = "".join(f"v_mov_b32 v{i}, 0\n" for i in range(2, 12))
MFMA = ZEROS + "s_nop 1\n v_mfma_f32_32x32x16_bf16 v[16:31], v[2:5], v[6:9], 0\n"


@dataclass(frozen=True)
class Twins:
    """`good` runs clean; with `old` replaced by `new` it has the finding `check`."""

    name: str
    check: str
    good: str
    old: str
    new: str = ""
    instruction: str = ""  # at which the finding is
    other: str = ""  # that the finding names as well
    options: dict[str, Any] = field(default_factory=dict)

    def broken(self) -> str:
        """The program with its fault."""
        assert self.good.count(self.old) == 1, f"{self.old!r} is not there once"
        return self.good.replace(self.old, self.new)


def execute(body: str, options: dict[str, Any], seed: int = 0) -> _emulator.Report:
    """Runs on 256 ones at s[4:5] and 256 zeros at s[6:7]."""
    data = np.ones(256, dtype=np.uint32)
    out = np.zeros(256, dtype=np.uint32)
    launch = {**options.get("launch", {}), "seed": seed}
    return run(body, data, out, **{**options, "launch": launch})
