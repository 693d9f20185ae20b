"""What launches hand to the driver, as a library was told that notes it: addresses as torch has
them, its stream, the struct, the grid; and which of kernels that compute the same they take.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import struct
import subprocess
from collections.abc import Callable, Container
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hk_backend import _hip
from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.library import HipLibrary
from hk_backend.devices.hip.memory import HostMemory
from hk_backend.devices.hip.modules import HipKernels
from hk_backend.kernels import Catalogue, KernelEntry, attention_plan, catalogue
from hk_backend.kernels.arguments import FORMATS
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.requests import AttentionRequest
from hk_backend.terms.verdict import SERVED, Verdict, refused
from tests.devices.hip.hip_calls import malloc
from tests.kernels.catalogues import selected
from tests.ops.cases import Call, Case, make

SOURCE = r"""
#include <cstddef>
#include <cstring>
extern "C" {
struct Note {
  unsigned grid[3], block, dynamic_lds;
  void *function, *stream;
  size_t bytes;
  unsigned char argument[1024];
} note;
const void* image;

int hipGetDeviceCount(int* count) { return *count = 1, 0; }
int hipGetDevice(int* device) { return *device = 0; }
int hipSetDevice(int) { return 0; }
int hipGetDevicePropertiesR0600(char* properties, int) {
  std::strcpy(properties + 1160, "gfx950:sramecc+:xnack-");  // gcnArchName
  return 0;
}
int compute_units = 256;
int hipDeviceGetAttribute(int* value, int attribute, int) {
  *value = compute_units;
  return attribute != 63;  // hipDeviceAttributeMultiprocessorCount
}
int hipStreamGetDevice(void*, int* device) { return *device = 0; }
int hipStreamIsCapturing(void*, int* status) { return *status = 0; }
int hipStreamSynchronize(void*) { return 0; }
int hipModuleLoadData(void** module, const void* data) {
  *module = const_cast<void*>(image = data);
  return 0;
}
int hipModuleGetFunction(void** function, void* module, const char*) {
  *function = module;
  return 0;
}
int hipFuncSetAttribute(void*, int, int) { return 0; }
int hipModuleLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                          unsigned, unsigned, unsigned lds, void* stream, void**, void** extra) {
  note = {{x, y, z}, block_x, lds, function, stream, *static_cast<size_t*>(extra[3]), {}};
  std::memcpy(note.argument, extra[1], note.bytes);
  return 0;
}
int hipGetLastError() { return 0; }
const char* hipGetErrorName(int) { return ""; }
const char* hipGetErrorString(int) { return ""; }
}
"""


class Note(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint),
        ("dynamic_lds", ctypes.c_uint),
        ("function", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("argument", ctypes.c_ubyte * 1024),
    )


class NotingLibrary(HipLibrary):
    """`note`: the last launch; `argument`: its struct; `set_compute_units`: of its one device."""

    def __init__(self, folder: Path) -> None:
        source, path = folder / "noting.cpp", folder / "libnoting.so"
        source.write_text(SOURCE)
        command = ["c++", "-O1", "-shared", "-fPIC", str(source), "-o", str(path)]
        subprocess.run(command, check=True)
        super().__init__(str(path), load=True)
        self._dll = ctypes.CDLL(str(path))
        self.note = Note.in_dll(self._dll, "note")

    def set_compute_units(self, count: int) -> None:
        ctypes.c_int.in_dll(self._dll, "compute_units").value = count

    @property
    def argument(self) -> bytes:
        return bytes(self.note.argument)[: self.note.bytes]

    @property
    def image(self) -> int:
        """The address of the code object that was loaded last."""
        return ctypes.c_void_p.in_dll(self._dll, "image").value or 0


BF16 = torch.bfloat16
STREAM = 0x5000
LAYOUT = "one [B,H,N,2D]"
ENTRY = selected("attention_prefill", dtype="bf16", head_size=64, keys="paged")


class OnAStream(HostMemory):
    def stream(self, index: int) -> int:
        return STREAM


@pytest.fixture
def on_a_stream(noting: NotingLibrary) -> HipDevice:
    return HipDevice(noting, catalogue("gfx950"), OnAStream(), check=lambda *_: SERVED)


def call_of(*lengths: tuple[int, int], seed: int = 0) -> Call:
    return make(Case(lengths, 4, 2, 64, BF16, layout=LAYOUT, seed=seed))


def launched(noting: NotingLibrary) -> dict[str, float]:
    """The fields of the struct that was handed over."""
    assert noting.note.bytes == ENTRY.arguments.size
    return {
        field.name: struct.unpack_from("<" + FORMATS[field.type], noting.argument, field.offset)[0]
        for field in ENTRY.arguments.fields
    }


def test_a_prepared_launch(noting: NotingLibrary, on_a_stream: HipDevice) -> None:
    """Prepared with one step, launched with another one and another layer's tensors."""
    first, call = call_of((5, 70), (33, 40)), call_of((17, 33), (2, 60), (9, 9), seed=1)
    cache, out = first["paged_kv"], torch.empty_like(first["query"])
    arguments = AttentionArguments(**first, out=out)
    tensors = (first["query"], cache.key.tensor, cache.value.tensor, out)
    prepared = on_a_stream.prepare_prefill(arguments, tensors)
    assert prepared is not None
    table = torch.zeros(3, 11, dtype=torch.int32)[:, :7]
    plan = on_a_stream.plan_prefill(call["query_start_loc"], 28, call["seq_lens"], table)
    other = call_of((5, 70), (33, 40), seed=2)["paged_kv"]
    now = (call["query"], other.key.tensor, other.value.tensor, torch.empty_like(call["query"]))
    assert prepared.launch(plan, now)
    found = launched(noting)
    named = dict(zip(("query", "key", "value", "out"), now, strict=True))
    named |= {name: call[name] for name in ("query_start_loc", "seq_lens")}
    for name, tensor in (named | {"block_table": table}).items():
        assert found[name] == tensor.data_ptr(), name
    assert (found["num_requests"], found["num_tokens"], found["block_table_row"]) == (3, 28, 11)
    assert (found["num_heads"], found["num_kv_heads"], found["lse"]) == (4, 2, 0)
    grid = ENTRY.grid(num_requests=3, num_tokens=28, num_kv_heads=2, group=2)
    assert tuple(noting.note.grid) == grid
    assert (noting.note.block, noting.note.dynamic_lds) == (ENTRY.block, ENTRY.dynamic_lds)
    assert noting.note.stream == STREAM


def test_the_operators_own_launch_hands_over_the_same(
    noting: NotingLibrary, on_a_stream: HipDevice
) -> None:
    call = call_of((5, 70), (33, 40))
    cache, out = call["paged_kv"], torch.empty_like(call["query"])
    arguments = AttentionArguments(**call, out=out)
    on_a_stream.run(arguments)
    own = launched(noting), list(noting.note.grid), noting.note.stream
    tensors = (call["query"], cache.key.tensor, cache.value.tensor, out)
    prepared = on_a_stream.prepare_prefill(arguments, tensors)
    assert prepared is not None
    rows = (call["query_start_loc"], len(call["query"]), call["seq_lens"], call["block_table"])
    assert prepared.launch(on_a_stream.plan_prefill(*rows), tensors)
    assert (launched(noting), list(noting.note.grid), noting.note.stream) == own


def test_code_objects_stay_in_memory(noting: NotingLibrary, on_a_stream: HipDevice) -> None:
    """HIP does not say that it copies them."""
    images = {}
    for entry in on_a_stream.catalogue.families["attention_prefill"]:
        on_a_stream.kernels.load(entry, 0)
        images[entry] = noting.image
    gc.collect()
    for entry, image in images.items():
        assert ctypes.string_at(image, entry.size) == entry.code_object()


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


def device_of(noting: NotingLibrary, compute_units: int, wrong: Container[int] = ()) -> HipDevice:
    """On which kernels whose tiles have `wrong` rows fail their self-check."""

    def check(device: object, operator: object, kernel: KernelEntry, index: int) -> Verdict:
        return refused(f"{kernel.name} is wrong") if kernel.tile.rows in wrong else SERVED

    noting.set_compute_units(compute_units)
    known = replace(catalogue("gfx950"), families={"attention_prefill": KERNELS})
    return HipDevice(noting, known, HostMemory(), check=check)


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


@LAUNCHES
@pytest.mark.parametrize(
    ("compute_units", "wrong", "rows"),
    [(8, {256}, 128), (24, {128}, 64), (32, {64}, 128), (1, {256, 128}, 64), (1, set(TILES), 0)],
)
def test_what_failed_its_self_check_is_not_launched(
    compute_units: int, wrong: set[int], rows: int, launch: Launch, noting: NotingLibrary
) -> None:
    """Another one serves; where there is none, it is an error."""
    device, noting.note.dynamic_lds = device_of(noting, compute_units, wrong), 0
    assert bool(device.verdict(LLAMA)) == bool(rows)
    why = "rows_256 is wrong; rows_128 is wrong; rows_64 is wrong"
    error = contextlib.nullcontext() if rows else pytest.raises(DeviceError, match=why)
    with error:
        launch(device, TOKENS)
    assert noting.note.dynamic_lds == rows


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
