"""Programs for each check of the emulator: correct ones without a finding, broken twins with one.

The programs lie in this folder, in listings:

    `# a global load without its wait
    unwaited-register | at v_add_u32 | beside global_load_dword | lds=256
      global_load_dword v2, v1, s[4:5]
    - s_waitcnt vmcnt(0)
      v_add_u32 v3, v2, v2`

Lines with "-" are the correct program's alone, those with "+" the broken one's. The finding is at
an instruction that begins with the text after "at", and names one that begins with the text after
"beside". Options of the launch follow. `$NAME` stands for a part of `PARTS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from hk_backend import _emulator
from tests.emulator.assembly import PROLOGUE, Program, lines, raw_buffer, run, together

ZERO = "v_mov_b32 v{}, 0"
PARTS = {
    "DESCRIPTOR": raw_buffer(1024),
    "COPY_TO_LDS": "s_mov_b32 m0, 0\n s_nop 0\n buffer_load_dword v1, s[8:11], 0 offen lds",
    "ZEROS": lines(ZERO, *range(2, 12)),
    "ZEROS_BUT_5": lines(ZERO, 2, 3, 4, *range(6, 12)),
    "ZEROS_BUT_13_AND_14": lines(ZERO, *range(2, 13), 15),
    "LOADS_63": lines("global_load_dword v{}, v1, s[4:5]", *range(10, 73)),
    "LOADS_62": lines("global_load_dword v{}, v1, s[4:5]", *range(10, 72)),
    "LOADS_TO_V10_AND_69_MORE": lines("global_load_dword v{}, v1, s[4:5]", *range(10, 80)),
    "READS_TO_V10_AND_19_MORE": lines("ds_read_b32 v{}, v1", *range(10, 30)),
    "MFMA": "s_nop 1\n v_mfma_f32_32x32x16_bf16 v[16:31], v[2:5], v[6:9], 0",
    # s8: the wave's first work-item; v2: 4 * lane, LDS bytes that the first wave has written
    "FIRST_WAVE_WRITES": """
      v_readfirstlane_b32 s8, v0
      v_and_b32 v2, 0xff, v1
      s_cmp_lt_u32 s8, 64
      s_cbranch_scc0 begun
      ds_write_b32 v2, v0
      s_waitcnt lgkmcnt(0)
      begun:
      s_barrier""",
    # m0 and the copy of each wave, s12, to its 256 bytes
    "COPY_OF_EACH_WAVE": """
      v_readfirstlane_b32 s13, v0
      s_lshr_b32 s12, s13, 6
      s_lshl_b32 s13, s13, 2
      s_mov_b32 m0, s13
      s_nop 0
      buffer_load_dword v1, s[8:11], 0 offen lds""",
    # v2: 4 * lane, LDS bytes that the first wave has cleared; the second wave goes to `other`
    "TWO_ROLES": """
      v_readfirstlane_b32 s12, v0
      v_and_b32 v2, 0xff, v1
      v_mov_b32 v3, 0
      s_cmp_eq_u32 s12, 0
      s_cbranch_scc0 begun
      ds_write_b32 v2, v3
      s_waitcnt lgkmcnt(0)
      begun:
      s_barrier"""
    + raw_buffer(1024)
    + """
      s_cmp_eq_u32 s12, 0
      s_cbranch_scc0 other""",
    # v[2:3]: 4 * work-item in LDS; v[4:5]: the begin of scratch
    "LDS_ADDRESS": "s_mov_b64 s[8:9], src_shared_base\n v_mov_b32 v2, v1\n v_mov_b32 v3, s9",
    "SCRATCH_ADDRESS": "s_mov_b64 s[8:9], src_private_base\n v_mov_b32 v4, 0\n v_mov_b32 v5, s9",
}


@dataclass
class Twins:
    """`good` runs clean; `broken` has the finding `check`."""

    name: str
    check: str
    good: str = ""
    broken: str = ""
    instruction: str = ""  # the finding is at it
    other: str = ""  # the finding names it as well
    options: dict[str, int] = field(default_factory=dict)

    def add(self, line: str) -> None:
        """Add a line of a listing."""
        text = Template(line[2:]).substitute(PARTS) + "\n"
        self.good += text if line[0] in " -" else ""
        self.broken += text if line[0] in " +" else ""


def listed(path: Path) -> Iterator[Twins]:
    """The twins of a listing."""
    for block in path.read_text().split("\n# ")[1:]:
        name, facts, *lines = block.rstrip().split("\n")
        check, *more = facts.split(" | ")
        twins = Twins(name, check)
        for fact in more:
            word, _, rest = fact.partition(" ")
            if word == "at":
                twins.instruction = rest
            elif word == "beside":
                twins.other = rest
            else:
                twins.options = {k: int(v) for k, v in (o.split("=") for o in fact.split())}
        for line in lines:
            assert line[:2] in ("  ", "- ", "+ "), line
            twins.add(line)
        yield twins


ALL = [twins for path in sorted(Path(__file__).parent.glob("*.s")) for twins in listed(path)]
OF_ASSEMBLY = {"lds", "scratch", "vgprs", "accum_offset", "sgprs"}


def programs() -> Iterator[Program]:
    for twins in ALL:
        options: dict[str, Any] = {k: v for k, v in twins.options.items() if k in OF_ASSEMBLY}
        yield from (Program(PROLOGUE + body, **options) for body in (twins.good, twins.broken))


together(programs())


def execute(body: str, seed: int = 0, **options: Any) -> _emulator.Report:
    """Runs on 256 ones at s[4:5] and 256 zeros at s[6:7]. `options` go to `run` or its launch."""
    data = np.ones(256, dtype=np.uint32)
    out = np.zeros(256, dtype=np.uint32)
    of_launch = ("checks", "max_instructions", "max_findings")
    launch = {name: options.pop(name) for name in of_launch if name in options}
    return run(body, data, out, launch={**launch, "seed": seed}, **options)
