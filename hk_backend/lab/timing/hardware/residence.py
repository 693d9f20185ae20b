"""Place of a traced launch's own data: the L2, the Infinity Cache or HBM.

A benchmark repeats its launch, so its data lie in the nearest cache that holds them.

The L2 holds all that the launch loads if that fits, with every load counted. This is an upper
bound, since workgroups may share what they load. The trace must agree: the median of its quiet
loads came back sooner than the Infinity Cache can answer.

The Infinity Cache holds an operand of the size that its descriptor states. Otherwise each load of a
launch without matrix instructions is of other bytes. With matrix instructions workgroups share
operands, so those without a stated size count as small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from hk_backend.lab.timing.hardware.assumed import LANES, SECTOR, accessed_bytes
from hk_backend.lab.timing.hardware.descriptors import operand, stated_sizes
from hk_backend.lab.timing.hardware.dispatch import Dispatch
from hk_backend.lab.timing.hardware.latencies import quiet

if TYPE_CHECKING:
    from hk_backend import _emulator

L2_BYTES, INFINITY_CACHE_BYTES = 32 << 20, 256 << 20
"""Sizes of the device's caches, of all XCDs together (product pages)."""
INFINITY_CACHE_WRITE_COST = 2.3
"""Cost of a byte written to the Infinity Cache, in bytes read; chosen on the vector addition."""
UNLIMITED = 1e6
"""TB/s of a memory that is no limit."""


def resident(dispatch: Dispatch, parameters: _emulator.TimingParameters) -> Mapping[str, float]:
    """Changes of parameters with which a workgroup's own data lie where they fit."""
    loaded = loaded_bytes(dispatch, parameters)
    if sum(loaded.values()) <= L2_BYTES and _answers_early(dispatch, parameters):
        return in_l2(parameters)
    size = _own_bytes(loaded, dispatch)
    return in_infinity_cache(parameters) if size <= INFINITY_CACHE_BYTES else in_hbm()


def loaded_bytes(
    dispatch: Dispatch, parameters: _emulator.TimingParameters
) -> Mapping[tuple[str, int | None], float]:
    """Bytes that all waves load of each operand and stated size, if they load as the traced do."""
    stated = stated_sizes(dispatch.lines)
    executed = _executed(dispatch)
    found: Counter[tuple[str, int | None]] = Counter()
    for number, line in enumerate(dispatch.lines):
        if not line.is_label and "_load" in line.mnemonic and (size := accessed_bytes(line)):
            found[operand(line), stated.get(number)] += size * LANES * executed[number]
    if dispatch.launch:
        waves = dispatch.launch.waves * parameters["xcds"] / len(dispatch.waves)
    else:
        waves = parameters["compute_units"] / len(dispatch.engines)
    return {key: count * waves for key, count in found.items()}


def _own_bytes(loaded: Mapping[tuple[str, int | None], float], dispatch: Dispatch) -> float:
    """Bytes of the launch's operands."""
    executed = _executed(dispatch)
    shared = any(count and not line.is_label and line.mnemonic.startswith("v_mfma")
                 for line, count in zip(dispatch.lines, executed, strict=True))  # fmt: skip
    return sum(
        min(count, size) if size is not None else 0.0 if shared else count
        for (_, size), count in loaded.items()
    )


def _executed(dispatch: Dispatch) -> list[int]:
    """How often the traced waves executed each line."""
    steps = np.concatenate([wave.steps["line"] for wave in dispatch.waves])
    counts: list[int] = np.bincount(steps, minlength=len(dispatch.lines)).tolist()
    return counts


def _answers_early(dispatch: Dispatch, parameters: _emulator.TimingParameters) -> bool:
    """Whether quiet loads come from the L2, as far as the trace shows any."""
    farthest = (parameters["l2_latency"] + parameters["infinity_cache_latency"]) / 2
    latencies = quiet(dispatch, farthest)
    return not latencies or float(np.median(latencies)) < farthest


def in_l2(parameters: _emulator.TimingParameters) -> Mapping[str, float]:
    """Changes of parameters with which a workgroup's own data lie in the L2."""
    rate = parameters["l2"]
    return {
        "compute_unit_fabric": rate,
        "infinity_cache": UNLIMITED,
        "infinity_cache_latency": parameters["l2_latency"],
        "hbm": UNLIMITED,
        "hbm_latency": 0.0,
        "hbm_write_cost": 1.0,
    }


def in_infinity_cache(parameters: _emulator.TimingParameters) -> Mapping[str, float]:
    """Changes of parameters with which a workgroup's own data lie in the Infinity Cache."""
    return {
        **in_hbm(),
        "hbm": parameters["infinity_cache"],
        "hbm_latency": parameters["infinity_cache_latency"],
        "hbm_write_cost": INFINITY_CACHE_WRITE_COST,
    }


def in_hbm() -> Mapping[str, float]:
    """Changes of parameters with which they lie in HBM: all CUs run in step, none ahead of it."""
    return {"hbm_burst": SECTOR}
