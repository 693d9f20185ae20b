"""What a layer's own weight leaves behind when it is packed: nothing."""

from __future__ import annotations

import subprocess
import sys

LOAD = """
import torch
from pathlib import Path
from hk_backend.engine.linear.packed_layer import pack_layer, release

LAYERS, N, K = 24, 2048, 1536  # 12 MiB each: glibc keeps such blocks when they are freed
WEIGHT = 4 * N * K


def in_memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


class Layer(torch.nn.Module):
    prefix = "model.layers.0.mlp.down_proj"


torch.set_num_threads(1)
warm = Layer()
warm.weight = torch.nn.Parameter(torch.ones(N, K), requires_grad=False)
pack_layer(warm, warm.weight, "fp32")
before = in_memory()
layers = [Layer() for _ in range(LAYERS)]
for layer in layers:  # as an engine: all of them are made, then each is packed
    layer.weight = torch.nn.Parameter(torch.ones(N, K), requires_grad=False)
for layer in layers:
    pack_layer(layer, layer.weight, "fp32")
    release(layer, "weight")
print((in_memory() - before) / (LAYERS * WEIGHT))
"""


def test_what_was_freed_is_given_back() -> None:
    """After a load memory holds the packed weights, and at most what is freed between two requests
    to the allocator (32 MiB of 288) and a layer's copy."""
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1 + (32 + 12) / 288
