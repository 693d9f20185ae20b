"""bfloat16 linear layers on a CPU with AMX, whose tiles HK's host kernels do not use.

oneDNN does, under torch, as far as `ONEDNN_MAX_CPU_ISA` lets it. Layers that are quantised are
worth serving all the same: their weights are smaller.
"""

from __future__ import annotations

import os

from hk_backend import machine
from hk_backend.config import get_config
from hk_backend.terms.verdict import SERVED, Verdict, refused

WHY = "bfloat16 on a CPU with AMX: torch's own linear is faster"


def amx_verdict(format: str, device_type: str) -> Verdict:
    """Whether a layer with a weight in `format`, on tensors of torch device type `device_type`, is
    better served by HK than by torch: always, if HK_DEVICE names a device."""
    torch_wins = format == "bf16" and device_type == "cpu" and torch_uses_amx()
    return refused(WHY) if torch_wins and get_config().device == "auto" else SERVED


def torch_uses_amx() -> bool:
    """Whether torch's bfloat16 products may use AMX: oneDNN takes what the processor advertises."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    return machine.advertises_amx() and (limit in ("", "DEFAULT") or "AMX" in limit)
