"""From traced samples to a figure for the device."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.timing import model
from hk_backend.timing.workloads import attention


@functools.cache
def traced(tokens: int = 1024, heads: int = 8, batch: int = 2) -> model.Traced:
    entry = catalogue("gfx950").select("attention_prefill", dtype="bf16", head_size=64, paged=False)
    assert isinstance(entry, KernelEntry)
    lengths = [tokens] * batch
    return model.trace(attention.launch(entry, attention.Shape(lengths, lengths, heads, 1)))


def test_the_same_bytes_give_the_same_clocks() -> None:
    again = model.trace(traced().launch)
    assert model.time(traced()).lengths == model.time(again).lengths
    assert model.time(traced()).microseconds == model.time(again).microseconds


def test_a_launch_lasts_at_least_as_long_as_its_longest_workgroup() -> None:
    modelled = model.time(traced())
    longest = max(modelled.lengths.values())
    assert modelled.clocks >= longest
    assert modelled.microseconds > longest / modelled.clock_ghz / 1e3
    assert 0 < modelled.busy_share <= 1
    assert all(share <= 1 for share in modelled.unit_share.values())


def test_workgroups_with_more_to_do_take_longer() -> None:
    lengths = list(model.time(traced()).lengths.values())
    assert lengths == sorted(lengths)


def test_a_device_with_half_the_units_takes_longer() -> None:
    whole = model.time(traced(heads=64))
    half = model.time(traced(heads=64), {"compute_units": 128})
    assert 1.5 < half.clocks / whole.clocks < 2.5


@pytest.mark.parametrize(
    "change",
    [
        {"matrix": 2.0},
        {"vector": 8},
        {"transcendental": 16},
        {"l2_latency": 2000},
        {"hbm": 0.2},
        {"lds_read_b128": 64},
        {"launch": 60},
        {"barrier_release": 200},
        {"clock": 1.2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_worse_machine_takes_longer(change: dict[str, float]) -> None:
    launch = traced(heads=64)
    assert model.time(launch, change).microseconds > model.time(launch).microseconds


def test_useful_figures() -> None:
    modelled = model.time(traced())
    assert modelled.flops_per_second == pytest.approx(modelled.flops / modelled.microseconds * 1e6)
    assert modelled.flops == 4 * 8 * 64 * 2 * (1024 * 1024 / 2)
    assert np.isfinite(modelled.bytes_per_second)
