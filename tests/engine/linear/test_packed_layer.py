"""What a layer's own weight leaves behind when it is packed: nothing."""

from __future__ import annotations

import subprocess
import sys

LOAD = """
import torch
from pathlib import Path
from hk_backend.engine.linear.packed_layer import pack_layer, release

# a Llama's, of 1 billion parameters: what is freed of one shape is in the way of the others
SHAPES = [(3072, 2048), (2048, 2048), (8192, 2048), (2048, 8192)] * 8


def in_memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


class Layer(torch.nn.Module):
    prefix = "model.layers.0.mlp.down_proj"


def made(n, k):
    layer = Layer()
    weight = torch.ones(n, k, dtype=torch.bfloat16)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    return layer


torch.set_num_threads(1)
warm = made(*SHAPES[0])
pack_layer(warm, warm.weight, "bf16")
before = in_memory()
layers = [made(*shape) for shape in SHAPES]  # as an engine: all are made, then each is packed
held = sum(layer.weight.nbytes for layer in layers)
for layer in layers:
    pack_layer(layer, layer.weight, "bf16")
    release(layer, "weight")
print(in_memory() - before - held)
"""


def test_what_was_freed_is_given_back() -> None:
    """After a load memory holds the packed weights, which are as large, and less than was freed
    since the last request to the allocator: 32 MiB, and the layer that made it so."""
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < (32 + 32) << 20
