"""What the pseudo-code of one lane reads and writes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class State:
    """What the pseudo-code of one lane reads and writes."""

    sources: dict[str, int] = field(default_factory=dict)  # S0, S1, S2, SIMM16, SIMM32
    d0: int = 0
    d1: int = 0
    scc: int = 0
    vcc: int = 0
    exec: int = (1 << 64) - 1
    lane: int = 0
    ieee: bool = True
    op_sel: int = 0
    sdwa_src0: int = 0
