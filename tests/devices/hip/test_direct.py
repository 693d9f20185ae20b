"""What a real GPU is handed: addresses as torch has them, torch's stream, the struct, the grid."""

from __future__ import annotations

import ctypes
import gc
import struct

import pytest
import torch

from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.memory import HostMemory
from hk_backend.kernels import catalogue
from hk_backend.kernels.arguments import FORMATS
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.noting_library import NotingLibrary
from tests.kernels.catalogues import selected
from tests.ops.cases import Call, Case, make

BF16 = torch.bfloat16
STREAM = 0x5000
LAYOUT = "one [B,H,N,2D]"
ENTRY = selected("attention_prefill", dtype="bf16", head_size=64, keys="paged")


class OnAStream(HostMemory):
    def stream(self, index: int) -> int:
        return STREAM


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> NotingLibrary:
    return NotingLibrary(tmp_path_factory.mktemp("noting"))


@pytest.fixture
def device(library: NotingLibrary) -> HipDevice:
    return HipDevice(library, catalogue("gfx950"), OnAStream(), check=lambda *_: SERVED)


def call_of(*lengths: tuple[int, int], seed: int = 0) -> Call:
    return make(Case(lengths, 4, 2, 64, BF16, layout=LAYOUT, seed=seed))


def launched(library: NotingLibrary) -> dict[str, float]:
    """The fields of the struct that was handed over."""
    assert library.note.bytes == ENTRY.arguments.size
    return {
        field.name: struct.unpack_from("<" + FORMATS[field.type], library.argument, field.offset)[0]
        for field in ENTRY.arguments.fields
    }


def test_a_prepared_launch(library: NotingLibrary, device: HipDevice) -> None:
    """Prepared with one step, launched with another one and another layer's tensors."""
    first, call = call_of((5, 70), (33, 40)), call_of((17, 33), (2, 60), (9, 9), seed=1)
    cache, out = first["paged_kv"], torch.empty_like(first["query"])
    arguments = AttentionArguments(**first, out=out)
    tensors = (first["query"], cache.key.tensor, cache.value.tensor, out)
    prepared = device.prepare_prefill(arguments, tensors)
    assert prepared is not None
    table = torch.zeros(3, 11, dtype=torch.int32)[:, :7]
    plan = device.plan_prefill(call["query_start_loc"], 28, call["seq_lens"], table)
    other = call_of((5, 70), (33, 40), seed=2)["paged_kv"]
    now = (call["query"], other.key.tensor, other.value.tensor, torch.empty_like(call["query"]))
    assert prepared.launch(plan, now)
    found = launched(library)
    named = dict(zip(("query", "key", "value", "out"), now, strict=True))
    named |= {name: call[name] for name in ("query_start_loc", "seq_lens")}
    for name, tensor in (named | {"block_table": table}).items():
        assert found[name] == tensor.data_ptr(), name
    assert (found["num_requests"], found["num_tokens"], found["block_table_row"]) == (3, 28, 11)
    assert (found["num_heads"], found["num_kv_heads"], found["lse"]) == (4, 2, 0)
    grid = ENTRY.grid(num_requests=3, num_tokens=28, num_kv_heads=2, group=2)
    assert tuple(library.note.grid) == grid
    assert (library.note.block, library.note.dynamic_lds) == (ENTRY.block, ENTRY.dynamic_lds)
    assert library.note.stream == STREAM


def test_the_operators_own_launch_hands_over_the_same(
    library: NotingLibrary, device: HipDevice
) -> None:
    call = call_of((5, 70), (33, 40))
    cache, out = call["paged_kv"], torch.empty_like(call["query"])
    arguments = AttentionArguments(**call, out=out)
    device.run(arguments)
    own = launched(library), list(library.note.grid), library.note.stream
    tensors = (call["query"], cache.key.tensor, cache.value.tensor, out)
    prepared = device.prepare_prefill(arguments, tensors)
    assert prepared is not None
    rows = (call["query_start_loc"], len(call["query"]), call["seq_lens"], call["block_table"])
    assert prepared.launch(device.plan_prefill(*rows), tensors)
    assert (launched(library), list(library.note.grid), library.note.stream) == own


def test_code_objects_stay_in_memory(library: NotingLibrary, device: HipDevice) -> None:
    """HIP does not say that it copies them."""
    images = {}
    for entry in device.catalogue.families["attention_prefill"]:
        device.kernels.load(entry, 0)
        images[entry] = library.image
    gc.collect()
    for entry, image in images.items():
        assert ctypes.string_at(image, entry.size) == entry.code_object()
