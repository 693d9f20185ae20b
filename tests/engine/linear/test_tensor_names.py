"""The names of the tensors of the checkpoint that was loaded last."""

from __future__ import annotations

import torch

from hk_backend.engine.linear.tensor_names import was_loaded, watched

MERGED, SHARDED = (f"model.layers.0.self_attn.{name}.weight_scale" for name in ("qkv", "q_proj"))


def test_names_are_those_of_the_last_load() -> None:
    """Merged, then in shards: a layer of the second must not be taken for a merged one."""
    for loaded, other in ((MERGED, SHARDED), (SHARDED, MERGED)):
        assert [name for name, _ in watched([(loaded, torch.ones(1))])] == [loaded]
        assert was_loaded(loaded)
        assert was_loaded(f"language_{loaded}"), "what stands before the layer's number may differ"
        assert not was_loaded(other)
