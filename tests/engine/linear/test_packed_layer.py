"""What a layer's own weight leaves behind when it is packed: nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from hk_backend.engine.linear import packed_layer
from hk_backend.engine.linear.packed_layer import Freed, pack_layer, release


class Layer(torch.nn.Module):
    prefix = "model.layers.0.mlp.down_proj"

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64, 64), requires_grad=False)


def test_what_is_freed_is_given_back_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator is asked each time that so much has been freed since, and not for each layer:
    how much it would keep else depends on the C library and on what was freed before."""
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
