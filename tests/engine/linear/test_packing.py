"""Memory for packing beyond the checkpoint's tensors, and what remains of a layer's own weight.

Each peak is measured in a process of its own, with an allocator that returns freed memory.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from hk_backend.engine.linear import packed_layer
from hk_backend.engine.linear.packed_layer import Freed, pack_layer, release
from tests.forked import Programs


class Layer(torch.nn.Module):
    prefix = "model.layers.0.mlp.down_proj"

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64, 64), requires_grad=False)


def test_what_is_freed_is_given_back_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator is asked to return memory after so much has been freed, not after each layer.
    Otherwise the C library and earlier frees would decide how much it keeps."""
    asked: list[int] = []
    libc = SimpleNamespace(malloc_trim=asked.append)
    monkeypatch.setattr(packed_layer.ctypes, "CDLL", lambda name: libc)
    monkeypatch.setattr(Freed, "since_trim", 0)
    monkeypatch.setattr(packed_layer, "TRIM_BYTES", 3 * 64 * 64 * 4)
    counts = []
    for _ in range(7):
        layer = Layer()
        pack_layer(layer, layer.weight, "fp32")
        release(layer)
        assert layer.weight.numel() == 0
        counts.append(len(asked))
    assert counts == [0, 0, 1, 1, 1, 2, 2]
    assert asked == [0, 0], "all that can be given back"


PROGRAM = """
import ctypes, json, sys
import torch
from hk_backend.engine.linear.packed_layer import pack_layer, release
from hk_backend.ops import pack_weight

LAYERS, N, K = 12, 2048, 2048
format, activations = sys.argv[1:]
torch.set_num_threads(1)
assert ctypes.CDLL(None).mallopt(-3, 65536)  # M_MMAP_THRESHOLD: what is freed is given back

def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) * 1024

def peak_of(call):
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # the peak starts over at what is resident now
    call()
    return memory("VmHWM")

def weight_of(n, k):
    weight = torch.zeros(n, k, dtype=torch.uint8).fill_(0x3c)
    if format == "bf16":
        return weight.bfloat16(), None
    return weight.view(torch.float8_e4m3fn), torch.ones(n, 1) * 0.5

def layer():
    made = torch.nn.Module()
    for name, tensor in zip(("weight", "weight_scale"), weight_of(N, K)):
        if tensor is not None:
            made.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
    return made

def pack(each, keep=False):
    scales = None if format == "bf16" else each.weight_scale.data
    pack_layer(each, each.weight.data, format, scales, activations=activations)
    if not keep:
        release(each, "weight_scale")

def model(keep):
    before = memory("VmRSS")
    layers = [layer() for _ in range(LAYERS)]
    loaded = memory("VmRSS") - before
    return (peak_of(lambda: [pack(each, keep) for each in layers]) - before) / loaded

pack(layer())
weight, scales = weight_of(16384, 4096)  # so large that what the heap has left over is nothing
before = memory("VmRSS")
one = peak_of(lambda: pack_weight(weight, format, scales, activations=activations)) - before
print(json.dumps({"released": model(False), "kept": model(True), "one": one / weight.nbytes}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("device", "format", "activations"),
    [("cpu", "fp8_e4m3fn", "none"), ("emulated:gfx950", "fp8_e4m3fn", "token")],
)
def test_a_model_is_packed_in_little_more_than_its_checkpoint(
    device: str, format: str, activations: str, programs: Programs
) -> None:
    """Layers are packed one by one, and each is released at once. Beside a large weight, only some
    of its rows are in memory a third time."""
    found = json.loads(programs.check(PROGRAM, format, activations, HK_DEVICE=device))
    assert 1.0 < found["released"] < 1.3, "of the checkpoint"
    assert found["kept"] > 1.9, "a model whose tensors are not released would be seen"
    assert 0.99 < found["one"] < 1.8, "of the weight: the packed one, and four times some rows"
