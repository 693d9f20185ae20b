"""Limits that hold a run of the suite to an instruction set: `make test ISA=avx2`."""

from __future__ import annotations

import os

from hk_backend import _cpu
from hk_backend.devices.cpu.isas import LIMITS, why_not
from hk_backend.lab.bench.isa import ISA_LIMITS


def limits(isa: str | None) -> dict[str, str]:
    """The environment that holds torch, oneDNN and HK's host kernels to `isa`, if it is one.

    HK_DEVICE is left to the tests: HK's kernels follow torch's limit (devices/cpu/isas.py).
    """
    held = ISA_LIMITS.get(isa or "", {})
    return {name: value for name, value in held.items() if not name.startswith("HK_")}


def held_to() -> str | None:
    """The instruction set that this process is held to, or None."""
    found = {name: os.environ.get(name) for name in LIMITS}
    return next((isa for isa in ISA_LIMITS if found.items() <= limits(isa).items()), None)


def problem(isa: str | None) -> str:
    """Why this processor cannot be held to `isa`; empty if it can."""
    found = _cpu.available_isas()
    if isa is None or isa in found:
        return ""
    why = why_not(isa)
    return (
        f"ISA={isa} is not valid: this processor has {', '.join(found)}{f' ({why})' if why else ''}"
    )


def native_isa() -> str:
    """The fastest instruction set of this processor that HK has kernels for."""
    return _cpu.available_isas()[0]
