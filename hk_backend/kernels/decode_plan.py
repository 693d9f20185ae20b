"""Plan of a decode launch, from what the host knows: sizes of the batch, and the GPU, no lengths.

The grid is as large as the GPU: workgroups deal all requests' keys among themselves
(csrc/kernels/attention/deal.hpp). `deal` does the same for known lengths. `microseconds` says how
long they take, within 10% (rms) of the timing model over 20 batches with each of eight kernels
(tests/lab/timing/test_planned_decode.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hk_backend.kernels.costs import DecodeCost, costs, of_nearest
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.masks import ALL_KEYS

LDS_BYTES, SIMDS, REGISTERS = 163840, 4, 512
"""LDS of a compute unit of gfx950; its SIMDs; registers of a lane on one of them."""
REGISTER_BLOCK = 8
"""Registers are allocated in multiples of this."""
LANES = 64
FEWEST = 8
"""Tiles of a share, of which some workgroups have none if there are fewer."""
SMALL = 2048
"""Elements of a small tile of keys (`kSmallTile` in csrc/kernels/attention/decode.hpp)."""
FAN = 8
"""Partial results that a workgroup joins on each level of a long request's tree
(csrc/kernels/attention/join_level.hpp)."""
CLOCK = costs("gfx950")
"""The only arch with decode kernels."""


class Arrival(NamedTuple):
    """A workgroup at a counter, the last one to get there if it `joins`."""

    counter: int
    results: int
    joins: bool


class Piece(NamedTuple):
    """A workgroup's tiles of one request, which `parts` workgroups share from `first_share` on."""

    share: int
    request: int
    tiles: int
    parts: int
    first_share: int

    def arrivals(self) -> Iterator[Arrival]:
        """The levels of the tree that its workgroup gets to. The last share of a group joins it."""
        counters, results, own = self.first_share, self.parts, self.share - self.first_share
        while results > 1:
            groups = -(-results // FAN)
            rest = (results - 1) % FAN + 1
            last = results - (rest if rest >= FAN // 2 else rest + FAN // 2) if groups > 1 else 0
            first, group = (last, groups - 1) if own >= last else (own // FAN * FAN, own // FAN)
            joined = (results if own >= last else min(first + FAN, last)) - first
            joins = own - first == joined - 1
            yield Arrival(counters + group, joined, joins)
            if not joins or groups == 1:
                return
            counters, results, own = counters + groups, groups, group


def shares(entry: KernelEntry, kv_heads: int, compute_units: int) -> int:
    """Number of workgroups of each KV head, which share the keys of all requests."""
    return max(compute_units * resident(entry) // kv_heads, 1)


def resident(entry: KernelEntry) -> int:
    """Workgroups that a compute unit holds at once."""
    lds = entry.static_lds + entry.dynamic_lds
    registers = -(-(entry.vgpr + entry.agpr) // REGISTER_BLOCK) * REGISTER_BLOCK
    waves = SIMDS * (REGISTERS // registers)
    return max(min(LDS_BYTES // max(lds, 1), waves // (entry.block // LANES)), 1)


def partial_bytes(entry: KernelEntry, shares: int, kv_heads: int) -> int:
    """Bytes of the workspace: two partial results of each workgroup, with two sums of each row."""
    return 2 * shares * kv_heads * entry.tile.rows * (entry.tile.depth + 2) * 4


def begin_tiles(entry: KernelEntry) -> int:
    """Number of tiles of keys that count as much as the begin of a request (`kBeginTiles` in
    csrc/kernels/attention/decode.hpp)."""
    if entry.facts["stored"] == "e4m3":
        return 7
    return 2 if entry.tile.columns * entry.tile.depth > SMALL else 4


def key_tiles(entry: KernelEntry, keys: int, tokens: int = 1, window: int = ALL_KEYS) -> int:
    """Tiles of keys of a request that a window of `window` keys leaves to its last `tokens`."""
    columns = entry.tile.columns
    first = max(keys - tokens + 1 - window, 0) // columns
    return max(-(-keys // columns) - first, 1)


def deal(tiles: Sequence[int], shares: int, begin: int) -> Iterator[Piece]:
    """Yields the pieces of all workgroups of a KV head, as the kernel deals them.

    Args:
        tiles: tiles of keys of each request, one or more.
        shares: workgroups of the KV head.
        begin: what the begin of a request counts as (`begin_tiles`).
    """
    whole = sum(tiles) + begin * len(tiles)
    used = max(min(whole // FEWEST, shares), 1)
    each, more = divmod(whole, used)
    begins = [share * each + min(share, more) for share in range(used + 1)]
    first_share = end = 0
    for request, count in enumerate(tiles):
        first, end = end + begin, end + begin + count
        while begins[first_share + 1] <= first:
            first_share += 1
        last_share = first_share
        while begins[last_share + 1] < end:
            last_share += 1
        parts = last_share - first_share + 1
        for share in range(first_share, last_share + 1):
            own = min(end, begins[share + 1]) - max(first, begins[share])
            yield Piece(share, request, own, parts, first_share)
        first_share = last_share


def microseconds(
    entry: KernelEntry, tiles: Sequence[int], kv_heads: int, compute_units: int
) -> float:
    """Estimated time of a launch, launch included.

    Workgroups are dealt to compute units in turn, and the slowest unit is waited for. It takes as
    long as its longest workgroup, or as the tiles of all of them take to read.

    Args:
        tiles: tiles of keys of each request, one or more.
    """
    cost, number = cost_of(entry), shares(entry, kv_heads, compute_units)
    alone, read = work_of_shares(cost, tiles, number, begin_tiles(entry))
    workgroups = [share for share in range(number) for _ in range(kv_heads) if read[share]]
    units = (workgroups[unit::compute_units] for unit in range(compute_units))
    slowest = max(
        max(
            max(alone[share] for share in own) * cost.crowding(min(len(own), resident(entry))),
            sum(read[share] for share in own) * cost.shared,
        )
        for own in units
        if own
    )
    return CLOCK.launch_microseconds + cost.fixed + slowest


def work_of_shares(
    cost: DecodeCost, tiles: Sequence[int], shares: int, begin: int
) -> tuple[list[float], list[int]]:
    """Microseconds that each workgroup of a KV head takes alone on a CU, and its tiles of keys.

    Arguments are those of `deal`.
    """
    alone, read = [0.0] * shares, [0] * shares
    for piece in deal(tiles, shares, begin):
        joined = sum(arrival.joins for arrival in piece.arrivals())
        alone[piece.share] += cost.begin + piece.tiles * cost.alone + joined * cost.join
        read[piece.share] += piece.tiles
    return alone, read


def cost_of(entry: KernelEntry) -> DecodeCost:
    """Cost of the kernel in the table that is most like `entry`."""
    by_size = CLOCK.attention_decode[1 if entry.facts["stored"] == "e4m3" else 2]
    return of_nearest(of_nearest(by_size, entry.tile.depth), entry.tile.rows)
