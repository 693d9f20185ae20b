"""Writes the timing model's costs of the kernels, from which planners choose (kernels/costs.py).

    python -m hk_backend.lab.timing.costs [--arch gfx950]

A kernel's cost follows from the modelled times of a few launches. Their workgroups take few steps
or many, and have a CU to themselves or share it. Of attention, bf16 kernels over pages stand for
all others (tests/lab/timing/test_planned_attention.py holds the planner's choices to the model,
test_planned_decode.py its times of decode).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

from hk_backend.kernels.attention_plan import FEW_PARTS, TILE_KEYS, partial_bytes
from hk_backend.kernels.catalogue import Catalogue, catalogue
from hk_backend.kernels.costs import COSTS, Cost, DecodeCost, MergeCost
from hk_backend.kernels.decode_plan import Piece, begin_tiles, resident, work_of_shares
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_plan import can_split
from hk_backend.kernels.masks import NO_MASK, WINDOW
from hk_backend.kernels.row_sources import PAGED
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.workloads import (
    attention_decode,
    attention_merge,
    attention_prefill,
    gemm,
)

UNITS = 256
"""Number of compute units of the modelled device."""
SHORT, LONG = 32, 96
"""Steps along the depth of a workgroup, in the short and in the long launch."""
SPLITS = 4
FEW_TILES, MANY_TILES = 16, 64
"""Tiles of keys of a workgroup of attention, in the short and in the long launch."""
HEADS, KV_HEADS = 64, 8
"""Heads of a request of attention, which has as many workgroups as query heads."""
FEW_ROWS, MANY_ROWS = (8, 8), (512, 32)
"""Query tokens and heads of merges that are bound by their start, and by memory."""
FEW_SHARES, PARTS = 8, 64
"""Workgroups of each of `KV_HEADS` that leave memory idle; those that share one request's keys."""
UNEVEN_TILES = (2, 5, 11)
"""Tiles of requests whose begins take longer than memory does, on a full GPU, too. Workgroups begin
theirs at different times, as they do in a server's batches."""


def gemm_cost(entry: KernelEntry) -> Cost:
    """Modelled cost of one gemm kernel, in microseconds.

    Raises `RuntimeError` if the emulator cannot execute the kernel to its end.
    """

    def modelled(workgroups: int, steps: int, splits: int = 1) -> model.Modelled:
        tiles = workgroups // splits
        # tiles one below the other share columns, so that memory does not limit the rate
        down = min(16, 1024 // entry.tile.rows, tiles)
        rows, columns = down * entry.tile.rows, tiles // down * entry.tile.columns
        shape = gemm.Shape(rows, columns, steps * splits * entry.tile.depth, splits)
        return model.time(trace(gemm.launch(entry, shape), threads=1))

    def microseconds(*arguments: int) -> float:
        found = modelled(*arguments)
        return found.microseconds - found.parameters["launch"]

    resident = modelled(16 * UNITS, SHORT).resident
    found = _cost(microseconds, (SHORT, LONG), UNITS, resident * UNITS, resident)
    summing = 0.0
    if can_split(entry, 1):
        alone = microseconds(UNITS, SHORT)
        summing = max(0.0, microseconds(UNITS, SHORT, SPLITS) - alone) / SPLITS
    return replace(found, sum=round(summing, 4))


def read_rate(entry: KernelEntry, cost: Cost) -> float:
    """Bytes that all CUs read from memory in a microsecond, in a launch that does little else."""
    found = model.time(trace(gemm.launch(entry, gemm.Shape(16, 57344, 8192)), threads=1))
    reading = found.microseconds - found.parameters["launch"] - cost.fixed
    return float(round(found.bytes / reading, -4))


def attention_cost(entry: KernelEntry) -> Cost:
    """Modelled cost of one attention kernel, in microseconds, for tiles of `TILE_KEYS` keys."""

    def modelled(requests: int, tiles: int) -> model.Modelled:
        rows, keys = [entry.tile.rows] * requests, [tiles * TILE_KEYS] * requests
        shape = attention_prefill.Shape(rows, keys, HEADS, KV_HEADS, causal=False)
        return model.time(trace(attention_prefill.launch(entry, shape), threads=1))

    def microseconds(requests: int, tiles: int) -> float:
        found = modelled(requests, tiles)
        return found.microseconds - found.parameters["launch"]

    resident = modelled(16 * UNITS // HEADS, FEW_TILES).resident
    full = resident * UNITS // HEADS
    return _cost(microseconds, (FEW_TILES, MANY_TILES), 1, full, resident)


def _cost(
    microseconds: Callable[[int, int], float],
    steps: tuple[int, int],
    few: int,
    full: int,
    resident: int,
) -> Cost:
    """The cost that follows from launches of two lengths and two sizes.

    Args:
        microseconds: modelled time of a launch of a size, whose workgroups take so many steps.
        few, full: sizes with at most one workgroup, and with `resident` ones, on each CU.
    """
    short, long = steps
    times = {(size, each): microseconds(size, each) for size in (few, full) for each in steps}
    alone, shared = (
        (times[size, long] - times[size, short]) / (long - short) for size in (few, full)
    )
    return Cost(
        resident=resident,
        fixed=round(float(times[few, short] - short * alone), 4),
        alone=round(float(alone), 5),
        shared=round(float(shared / resident), 5),
    )


def merge_cost(entry: KernelEntry) -> MergeCost:
    """Modelled cost of one kernel that joins partial results, in microseconds."""

    def microseconds(rows: tuple[int, int], parts: int) -> float:
        shape = attention_merge.Shape(*rows, parts)
        found = model.time(trace(attention_merge.launch(entry, shape), threads=1))
        return float(found.microseconds - found.parameters["launch"])

    few, many = (microseconds(FEW_ROWS, turns * FEW_PARTS) for turns in (1, 8))
    turn = (many - few) / 7
    rows = MANY_ROWS[0] * MANY_ROWS[1] - FEW_ROWS[0] * FEW_ROWS[1]
    read = partial_bytes(rows * FEW_PARTS, entry.tile.depth)
    rate = read / (microseconds(MANY_ROWS, FEW_PARTS) - few)
    return MergeCost(round(few - turn, 3), round(turn, 3), float(round(rate, -4)))


def decode_cost(entry: KernelEntry) -> DecodeCost:
    """Modelled cost of one decode kernel, in microseconds."""

    def batch(tiles: Sequence[int], shares: int, kv_heads: int = KV_HEADS) -> float:
        keys = [each * entry.tile.columns for each in tiles]
        heads = HEADS // KV_HEADS * kv_heads
        shape = attention_decode.Shape([1] * len(tiles), keys, heads, kv_heads, shares=shares)
        found = model.time(trace(attention_decode.launch(entry, shape), threads=1))
        return float(found.microseconds - found.parameters["launch"])

    def modelled(requests: int, tiles: int, shares: int, kv_heads: int = KV_HEADS) -> float:
        return batch([tiles] * requests, shares, kv_heads)

    few, full, more = FEW_SHARES, resident(entry) * UNITS // KV_HEADS, MANY_TILES - FEW_TILES
    short, long, both = (
        modelled(requests, tiles, few)
        for requests, tiles in ((few, FEW_TILES), (few, MANY_TILES), (2 * few, FEW_TILES))
    )
    alone = (long - short) / more
    begin = both - short - FEW_TILES * alone
    together = (modelled(full, MANY_TILES, full) - modelled(full, FEW_TILES, full)) / more
    whole = PARTS * FEW_TILES - begin_tiles(entry)
    parted = modelled(1, whole, PARTS, 1) - modelled(1, FEW_TILES, 1, 1)
    last = Piece(PARTS - 1, 0, FEW_TILES, PARTS, 0)
    found = DecodeCost(
        fixed=round(short - FEW_TILES * alone - begin, 4),
        begin=round(begin, 4),
        alone=round(alone, 5),
        shared=round(together / resident(entry), 5),
        resident=resident(entry),
        crowded=1.0,
        join=round(parted / sum(each.joins for each in last.arrivals()), 4),
    )
    tiles = UNEVEN_TILES * (2 * full // len(UNEVEN_TILES))
    longest = max(work_of_shares(found, tiles, full, begin_tiles(entry))[0])
    return replace(found, crowded=round((batch(tiles, full) - found.fixed) / longest, 4))


def decode_costs(kernels: Catalogue) -> dict[int, dict[int, dict[int, object]]]:
    """The part of the file about decode: costs by a stored element's bytes, head size and rows."""
    facts = {"dtype": "bf16", "keys": PAGED, "padded": False, "mask": WINDOW}
    found: dict[int, dict[int, dict[int, object]]] = {}
    for entry in kernels.families["attention_decode"]:
        if all(entry.facts[name] == value for name, value in facts.items()):
            made = decode_cost(entry)
            print(f"{entry.name}: {made}", file=sys.stderr)
            by_size = found.setdefault(1 if entry.facts["stored"] == "e4m3" else 2, {})
            by_size.setdefault(entry.tile.depth, {})[entry.tile.rows] = asdict(made)
    return found


def attention_costs(kernels: Catalogue) -> dict[str, object]:
    """The parts of the file about attention: costs by head size and by rows of a workgroup."""
    facts = {"dtype": "bf16", "stored": "bf16", "keys": PAGED, "padded": False, "mask": NO_MASK}
    family = [
        entry
        for entry in kernels.families["attention_prefill"]
        if all(entry.facts[name] == value for name, value in facts.items())
    ]
    family.sort(key=lambda entry: (entry.tile.depth, -entry.tile.rows))
    found: dict[int, dict[int, object]] = {}
    for entry in family:
        made = attention_cost(entry)
        print(f"{entry.name}: {made}", file=sys.stderr)
        found.setdefault(entry.tile.depth, {})[entry.tile.rows] = asdict(made)
    merge = kernels.families["attention_merge"]
    merges = {entry.tile.depth: entry for entry in merge if entry.facts["dtype"] == "bf16"}
    of_merge = {size: asdict(merge_cost(merges[size])) for size in sorted(merges)}
    decode = decode_costs(kernels)
    return {"attention": found, "attention_merge": of_merge, "attention_decode": decode}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    from hk_backend import _emulator

    parser = argparse.ArgumentParser(prog="python -m hk_backend.lab.timing.costs")
    parser.add_argument("--arch", default="gfx950")
    arch = parser.parse_args(argv).arch
    kernels = catalogue(arch)
    family = kernels.families["gemm"]
    made: dict[KernelEntry, Cost] = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for entry, cost in zip(family, pool.map(gemm_cost, family), strict=True):
            print(f"{len(made) + 1}/{len(family)} {entry.name}: {cost}", file=sys.stderr)
            made[entry] = cost
    smallest = min(family, key=lambda entry: entry.tile.rows * entry.tile.columns)
    parameters, table = _emulator.TimingParameters(arch), json.loads(COSTS.read_text())
    table[arch] = {
        "launch_microseconds": parameters["dependent_gap"],
        "read_ahead_bytes": int(parameters["hbm_burst"]),
        "read_bytes_per_microsecond": read_rate(smallest, made[smallest]),
        **attention_costs(kernels),
        "gemm": {entry.name: {"code": entry.code, **asdict(cost)} for entry, cost in made.items()},
    }
    COSTS.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
