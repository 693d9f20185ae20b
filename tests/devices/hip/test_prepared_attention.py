"""Attention launches that are prepared once per layer: their results and their refusals."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip import attention_launch
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.kernels import KernelEntry, attention_plan, catalogue
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.attention_step import AttentionStep
from hk_backend.terms.verdict import SERVED, Verdict, refused
from tests.devices.hip.attention_call import BF16, Call
from tests.devices.hip.device import OnTheHost
from tests.kernels.catalogues import selected
from tests.ops.cases import Case, make

FIRST, SECOND = ((40, 40), (5, 5)), ((7, 7), (33, 33), (20, 20))
# both have equally many blocks, since an engine's cache has a fixed number
FIRST_EXTENDS, SECOND_EXTENDS = ((5, 70), (33, 40)), ((17, 33), (2, 60), (9, 9))
LAYOUT = "NHD, two tensors"


def packed(lengths: Any, **more: Any) -> Case:
    return Case(lengths, 4, 2, 64, BF16, **more)


def paged(lengths: Any, kv_dtype: torch.dtype | None = None, **more: Any) -> Case:
    return Case(lengths, 4, 2, 64, BF16, kv_dtype, LAYOUT, 16, **more)


def narrow(lengths: Any, **more: Any) -> Case:
    return paged(lengths, torch.float8_e4m3fn, **more)


@pytest.mark.parametrize(
    ("of", "scales"),
    [
        (packed, {}),
        (paged, {}),
        (narrow, {"k_scale": "number", "v_scale": "number"}),
        (narrow, {"k_scale": "one", "v_scale": "one"}),
        (narrow, {"k_scale": "number", "v_scale": "per head"}),
    ],
)
def test_other_tensors_and_rows(
    of: Callable[..., Case], scales: dict[str, str], device: OnTheHost, streams: dict[int, int]
) -> None:
    """A launch prepared with one step computes the next one, and waits for nothing."""
    first, second = (FIRST, SECOND) if of is packed else (FIRST_EXTENDS, SECOND_EXTENDS)
    before, now = (Call(of(lengths, **scales)) for lengths in (first, second))
    prepared = before.prepared(device)
    for name, scale in before.made.items():
        if name in ("k_scale", "v_scale") and isinstance(scale, torch.Tensor):
            now.made[name] = scale.mul_(0.25)  # a layer's own, read when it runs
    assert prepared.launch(now.step(), now.tensors)
    assert device.library.report()["synchronising_calls"] == 0
    assert now.out.isnan().all(), "it ran before anything waited"
    device.library.synchronise(streams[0])
    now.check()
    assert before.out.isnan().all()


@pytest.mark.parametrize(
    "case",
    [
        narrow(FIRST_EXTENDS, sliding_window=20),
        packed(FIRST, logits_soft_cap=0.5),
        paged(FIRST_EXTENDS, alibi=True),
    ],
    ids=["narrow", "capped", "biased"],
)
def test_masks_are_the_layer_s(case: Case, device: OnTheHost, streams: dict[int, int]) -> None:
    """The mask of a layer stays the same for any number of tokens in the next step."""
    case = case.but(sinks=True)
    second = SECOND if case.layout is None else SECOND_EXTENDS
    before, now = (Call(each) for each in (case, case.but(lengths=second)))
    for name in ("sinks", "alibi_slopes"):
        now.made[name] = before.made[name]
    assert before.prepared(device).launch(now.step(), now.tensors)
    device.library.synchronise(streams[0])
    now.check()


def apart(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, with as many others between them along the last axis."""
    wide = torch.full((*tensor.shape, 2), -7, dtype=tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0]


def within_wider_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The first columns of a wider table, like the views in engines."""
    wide = torch.full((len(tensor), tensor.shape[1] + 5), -7, dtype=tensor.dtype)
    wide[:, : tensor.shape[1]] = tensor
    return wide[:, : tensor.shape[1]]


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("query_start_loc", apart),
        ("seq_lens", apart),
        ("block_table", apart),
        ("block_table", within_wider_rows),
    ],
)
def test_rows_that_are_views(
    name: str,
    view: Callable[[torch.Tensor], torch.Tensor],
    device: OnTheHost,
    streams: dict[int, int],
) -> None:
    """Views work in a plan and in the operator's own launch."""
    call = Call(paged(FIRST_EXTENDS))
    prepared = call.prepared(device)
    given = view(call.made[name])
    assert given.stride() != call.made[name].stride()
    viewed = {**call.made, name: given}
    rows = {key: viewed[key] for key in ("query_start_loc", "seq_lens", "block_table")}
    step = AttentionStep.of(**rows, num_tokens=call.num_tokens)
    copied = step.tensors()[name].data_ptr() != given.data_ptr()
    assert copied == (view is apart), "a table's wider rows need no copy"
    assert prepared.launch(step, call.tensors)
    device.library.synchronise(streams[0])
    call.check()
    call.out.fill_(torch.nan)
    made = attention_launch.prepare(AttentionArguments(**viewed, out=call.out), device.catalogue)
    device.launch(made, 0)  # `made` keeps the copies alive, as a GPU's allocator would
    device.library.synchronise(streams[0])
    call.check()


def test_what_a_plan_does_not_know_is_not_prepared(
    device: OnTheHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log-sum-exp, or keys in other rows, is not prepared. Nothing is if torch's tensors cannot
    be read."""
    call = Call(packed(FIRST))

    def prepare(**more: torch.Tensor) -> object:
        arguments = AttentionArguments(**call.made, out=call.out, **more)
        return device.prepare(arguments, call.tensors)

    assert prepare() is not None
    assert prepare(lse=torch.empty(4, call.num_tokens)) is None
    assert prepare(key_start_loc=call.made["query_start_loc"].clone()) is None
    monkeypatch.setattr("hk_backend.devices.hip.device.reads_tensors", False)
    assert prepare() is None


def replaced(index: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def of(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return *tensors[:index], change(tensors[index]), *tensors[index + 1 :]

    return of


def strided(tensor: torch.Tensor) -> torch.Tensor:
    wide = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
    return wide[..., : tensor.shape[-1]]


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    memory = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)
    return memory[1:].view(tensor.shape)


CHANGES = {
    "dtype": lambda tensor: tensor.half(),
    "size": lambda tensor: torch.zeros(*tensor.shape[:-1], 128, dtype=BF16),
    "heads": lambda tensor: torch.cat([tensor, tensor], dim=-2),
    "strides": strided,
    "dimensions": lambda tensor: tensor[None],
    "alignment": misaligned,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("case", [packed(FIRST), paged(FIRST_EXTENDS)], ids=["packed", "paged"])
def test_what_was_not_prepared_for_is_not_launched(
    case: Case, change: Callable[[torch.Tensor], torch.Tensor], device: OnTheHost
) -> None:
    """A query, key, value or out of another form is not launched."""
    call = Call(case)
    prepared, emulated = call.prepared(device), device.mapped.library
    for index in range(4):
        assert not prepared.launch(call.step(), replaced(index, change)(call.tensors))
    assert emulated.launch_calls() == 0
    assert prepared.launch(call.step(), call.tensors)
    assert emulated.launch_calls() == 1


def test_too_few_rows_are_not_launched(device: OnTheHost) -> None:
    call, cached = Call(packed(FIRST)), Call(paged(FIRST_EXTENDS))
    prepared = call.prepared(device)
    for index in range(4):
        assert not prepared.launch(call.step(), replaced(index, lambda t: t[:-1])(call.tensors))
        longer = replaced(index, lambda t: torch.cat([t, t[:1]]))(call.tensors)
        assert prepared.launch(call.step(), longer), "rows of padding"
    prepared = cached.prepared(device)
    for index in (1, 2):  # blocks
        for other in (lambda t: t[:-1], lambda t: torch.cat([t, t[:1]])):
            assert not prepared.launch(cached.step(), replaced(index, other)(cached.tensors))


def test_a_step_keeps_its_tensors(device: OnTheHost) -> None:
    """A step holds its tensors, since it keeps their addresses and an engine may drop its views."""
    call = Call(paged(FIRST_EXTENDS))
    step = call.step()
    assert call.prepared(device).launch(step, call.tensors)
    device.mapped.kept.clear()
    names = ("query_start_loc", "seq_lens", "block_table")
    kept = [weakref.ref(call.made.pop(name)) for name in names]
    gc.collect()
    assert all(each() is not None for each in kept)
    del step
    gc.collect()
    assert all(each() is None for each in kept), "the control"


def test_a_launched_step_is_freed_without_the_collector(device: OnTheHost) -> None:
    """Engines make new tables for each step, and may switch the collector off."""
    call = Call(paged(FIRST_EXTENDS))
    step = call.step()
    assert call.prepared(device).launch(step, call.tensors)
    device.mapped.kept.clear()
    table = weakref.ref(call.made.pop("block_table"))
    gc.collect()
    gc.disable()
    try:
        del step
        assert table() is None
    finally:
        gc.enable()


def test_the_stream_is_torchs_of_the_moment(
    device: OnTheHost, streams: dict[int, int], library: EmulatedLibrary
) -> None:
    """The stream is torch's current one, not that of the plan's making, and never one of another
    GPU."""
    call = Call(packed(FIRST))
    prepared, step = call.prepared(device), call.step()
    assert prepared.launch(step, call.tensors)
    library.synchronise(streams[0])
    call.out.fill_(torch.nan)
    before, streams[0] = streams[0], 0
    assert prepared.launch(step, call.tensors)
    library.synchronise(before)
    assert call.out.isnan().all(), "it ran on the stream of before"
    library.synchronise(0)
    call.check()
    streams[0] = streams[1]
    with pytest.raises(DeviceError, match="is of device 1, tensors of 0"):
        prepared.launch(step, call.tensors)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("query_start_loc", lambda tensor: tensor.long()),
        ("query_start_loc", lambda tensor: tensor[None]),
        ("query_start_loc", lambda tensor: tensor[0]),
        ("query_start_loc", lambda tensor: tensor[:0]),
        ("seq_lens", lambda tensor: tensor[:-1]),
        ("seq_lens", lambda tensor: tensor.to("meta")),
        ("seq_lens", lambda tensor: tensor[0]),
        ("seq_lens", lambda tensor: tensor.float()),
        ("block_table", lambda tensor: tensor[:-1]),
        ("block_table", lambda tensor: tensor[0]),
        ("block_table", lambda tensor: tensor[0, 0]),
        ("block_table", lambda tensor: tensor.to("meta")),
    ],
)
def test_rows_that_are_refused(
    name: str, change: Callable[[torch.Tensor], torch.Tensor], device: OnTheHost
) -> None:
    made = make(paged(FIRST_EXTENDS))
    rows = {key: made[key] for key in ("query_start_loc", "seq_lens", "block_table")}
    with pytest.raises(ValueError, match=f"^{name}: .* is not valid: expected"):
        AttentionStep.of(**{**rows, name: change(rows[name])}, num_tokens=38)


def test_rows_on_another_device_are_refused(device: OnTheHost) -> None:
    call = Call(packed(FIRST))
    step = AttentionStep.of(call.made["query_start_loc"].to("meta"), call.num_tokens)
    with pytest.raises(ValueError, match=r"^query_start_loc: a tensor on meta is not valid"):
        call.prepared(device).launch(step, call.tensors)


TILES = {256: 4, 128: 8, 64: 16}
"""Tiles per KV head of one request of 512 tokens, by the rows of a tile."""
WHOLE = selected("attention_prefill", dtype="bf16", head_size=128, keys="packed")
KERNELS = tuple(
    replace(WHOLE, name=f"rows_{rows}", tile=replace(WHOLE.tile, rows=rows)) for rows in TILES
)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize(
    ("compute_units", "wrong", "rows"),
    [(20, set(), 128), (64, set(), 64), (20, {128}, 64), (1, set(TILES), 0)],
)
def test_the_tile_that_is_planned_of_those_that_pass_their_self_check(
    compute_units: int,
    wrong: set[int],
    rows: int,
    prepared: bool,
    library: EmulatedLibrary,
    streams: dict[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The grid shows which kernel was launched. The preparation was for a step of another size."""

    def check(device: object, operator: object, kernel: KernelEntry, index: int) -> Verdict:
        return refused(f"{kernel.name} is wrong") if kernel.tile.rows in wrong else SERVED

    monkeypatch.setattr(library, "compute_units", lambda index: compute_units)
    known = replace(catalogue("gfx950"), families={"attention_prefill": KERNELS})
    device = OnTheHost(library, known, check=check)
    first, call = (Call(packed(((n, n),)).but(head_size=128)) for n in (5, 512))
    if not wrong:
        step = attention_plan.LaunchSizes(512, 1, 0, 4, 2, 128)
        assert attention_plan.choose(step, compute_units, tuple(TILES), parts=False).rows == rows
    why = "rows_256 is wrong; rows_128 is wrong; rows_64 is wrong"
    with contextlib.nullcontext() if rows else pytest.raises(DeviceError, match=why):
        if prepared:
            assert first.prepared(device).launch(call.step(), call.tensors)
        else:
            device.run(AttentionArguments(**call.made, out=call.out))
    library.synchronise(streams[0])
    launched = library.report()["kernels"].values()
    waves = [each["counters"]["by_mnemonic"]["s_endpgm"] for each in launched]
    assert waves == ([2 * TILES[rows] * WHOLE.block // 64] if rows else [])
