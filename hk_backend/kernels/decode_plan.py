"""Plan of a decode launch, from what the host knows: sizes of the batch, and the GPU, no lengths.

The grid is as large as the GPU: workgroups deal all requests' keys among themselves
(csrc/kernels/attention/deal.hpp).
"""

from __future__ import annotations

from hk_backend.kernels.entry import KernelEntry

LDS_BYTES, SIMDS, REGISTERS = 163840, 4, 512
"""LDS of a compute unit of gfx950; its SIMDs; registers of a lane on one of them."""
REGISTER_BLOCK = 8
"""Registers are allocated in multiples of this."""
SHARES_OF_A_REQUEST = 128
"""Most shares of each KV head for every request: joining more takes longer than their keys do."""
LANES = 64


def shares(entry: KernelEntry, requests: int, kv_heads: int, compute_units: int) -> int:
    """Number of workgroups of each KV head, which share the keys of all requests."""
    fitting = compute_units * resident(entry) // kv_heads
    return max(min(fitting, requests * SHARES_OF_A_REQUEST), 1)


def resident(entry: KernelEntry) -> int:
    """Workgroups that a compute unit holds at once."""
    lds = entry.static_lds + entry.dynamic_lds
    registers = sum(
        -(-each // REGISTER_BLOCK) * REGISTER_BLOCK for each in (entry.vgpr, entry.agpr)
    )
    waves = SIMDS * (REGISTERS // registers)
    return max(min(LDS_BYTES // max(lds, 1), waves // (entry.block // LANES)), 1)


def partial_bytes(entry: KernelEntry, shares: int, kv_heads: int) -> int:
    """Bytes of the workspace: two partial results of each workgroup, with two sums of each row."""
    return 2 * shares * kv_heads * entry.tile.rows * (entry.tile.depth + 2) * 4
