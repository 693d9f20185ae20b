"""Of kernels that compute the same, each launch takes one by its size and the GPU's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from hk_backend import _hip
from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.memory import HostMemory
from hk_backend.devices.hip.modules import HipKernels
from hk_backend.kernels import Catalogue, attention_plan, catalogue
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.requests import AttentionRequest
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.hip_calls import malloc
from tests.devices.hip.noting_library import NotingLibrary
from tests.devices.hip.test_device import selected
from tests.ops.cases import Case, make

KERNEL = selected("attention_prefill", dtype="bf16", head_size=128, keys="packed")
LLAMA = AttentionRequest("cpu", torch.bfloat16, 4, 2, 128)
NUM_HEADS, NUM_KV_HEADS = 4, 2
KERNELS = tuple(
    # what is launched is known by its LDS
    replace(KERNEL, name=f"rows_{rows}", tile=replace(KERNEL.tile, rows=rows), dynamic_lds=rows)
    for rows in (64, 256, 128)
)
TOKENS = 512
TILES = {256: 4, 128: 8, 64: 16}
"""Of `TOKENS` in one request, for each KV head: as many as its heads' rows fill."""


@pytest.fixture(scope="module")
def noting(tmp_path_factory: pytest.TempPathFactory) -> NotingLibrary:
    return NotingLibrary(tmp_path_factory.mktemp("noting"))


def device_of(noting: NotingLibrary, compute_units: int) -> HipDevice:
    noting.set_compute_units(compute_units)
    known = replace(catalogue("gfx950"), families={"attention_prefill": KERNELS})
    return HipDevice(noting, known, HostMemory(), check=lambda *_: SERVED)


def arguments_of(tokens: int) -> AttentionArguments:
    call = make(Case(((tokens, tokens),), NUM_HEADS, NUM_KV_HEADS, 128, torch.bfloat16))
    return AttentionArguments(**call, out=torch.empty_like(call["query"]))


def run(device: HipDevice, tokens: int) -> None:
    device.run(arguments_of(tokens))


def run_prepared(device: HipDevice, tokens: int) -> None:
    """Prepared for a step of another size."""
    first, now = arguments_of(5), arguments_of(tokens)
    prepared = device.prepare_prefill(first, (first.query, *first.stored(), first.out))
    assert prepared is not None
    plan = device.plan_prefill(now.query_start_loc, tokens, None, None)
    assert prepared.launch(plan, (now.query, *now.stored(), now.out))


Launch = Callable[[HipDevice, int], None]
LAUNCHES = pytest.mark.parametrize("launch", [run, run_prepared])


@LAUNCHES
@pytest.mark.parametrize(
    ("compute_units", "rows"), [(1, 256), (8, 256), (12, 128), (24, 128), (32, 64), (64, 64)]
)
def test_the_tile_that_is_planned(
    compute_units: int, rows: int, launch: Launch, noting: NotingLibrary
) -> None:
    """Of a few units each is given large ones, of many some are left."""
    step = attention_plan.Step(TOKENS, 1, 0, NUM_HEADS, NUM_KV_HEADS, 128)
    assert attention_plan.choose(step, compute_units, TILES, parts=False).rows == rows
    launch(device_of(noting, compute_units), TOKENS)
    assert noting.note.dynamic_lds == rows
    assert tuple(noting.note.grid) == (NUM_KV_HEADS, TILES[rows], 1)


def test_the_gpu_of_the_launch_is_asked(
    library: EmulatedLibrary, small: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a partition mode two of one arch may differ. Once for a kernel: no launch asks."""
    asked: list[int] = []
    monkeypatch.setattr(library, "compute_units", lambda i: asked.append(i) or (1, 2)[i])
    kernels, large = HipKernels(library), small.kernel("fill")
    half = replace(small.kernel("stray"), tile=replace(large.tile, rows=large.tile.rows // 2))
    for index in (0, 1, 0, 1):
        with library.current(index):
            out = malloc(library, 4 * 256)
        count = 2 * large.tile.rows  # two workgroups of `fill`, four of `stray`
        values = {"out": out, "value": 1, "count": count}
        kernels.launch((large, half), index, 0, {"count": count}, **values)
        with library.current(index):
            library.synchronise(0)
        launches = {name: each["launches"] for name, each in library.report()["kernels"].items()}
        library.forget_report()
        assert launches == {("fill", "stray")[index]: 1}
    assert sorted(asked) == [0, 0, 1, 1]


def test_no_kernels_and_kernels_of_two_gpus(library: EmulatedLibrary, small: Catalogue) -> None:
    kernels = HipKernels(library)
    with pytest.raises(ValueError, match="kernels: none"):
        _hip.launch([], 0, {}, b"")
    of_two = [kernels.load(small.kernel("fill"), index) for index in (0, 1)]
    with pytest.raises(ValueError, match="kernels: of several devices"):
        _hip.launch(of_two, 0, {"count": 1}, bytes(16))
