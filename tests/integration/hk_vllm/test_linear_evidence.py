"""Linear layers that are measured beside vLLM's own methods and kernels."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm import ranks
from hk_vllm.linear.next_kernel import theirs_for

from hk_backend.engine.evidence import ALONE
from hk_backend.engine.linear.contest import activations
from hk_backend.engine.linear.heads import KEPT_HEAD
from hk_backend.engine.linear.route import is_attached
from hk_backend.engine.linear.shards import CheckpointError
from hk_backend.ops import LinearRequest
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.adapter import Environment
from tests.integration.hk_vllm import linear_layers
from tests.integration.shared.checkpoints import LAYERS
from tests.integration.shared.evidence import Bench, start_again
from tests.integration.shared.linear.layers import (
    layer_of,
    left,
    loaded,
)

pytestmark = pytest.mark.usefixtures("fresh_linear_route")

MEASURED = "ct-channel-token", "quark-channel-token", "modelopt-channel-token"
"""Schemes that a kernel of vLLM's computes on every CPU."""
UNMEASURED = {
    "fp8-block": "it has no kernel for such a layer",
    "ct-mxfp4": "it has no kernel for such a layer",
    "ct-channel-weight-only": "it has no kernel for such a layer",
    "fp8-dynamic": "PerTensorTorchFP8ScaledMMLinearKernel: RuntimeError: ",
    "fp8-static": "PerTensorTorchFP8ScaledMMLinearKernel: RuntimeError: ",
}
"""Schemes that no kernel of vLLM's computes on a CPU without tiles, each with the reason."""


@pytest.fixture
def no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)


def test_one_line_when_the_model_is_loaded(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader's wrapper logs one line."""
    from hk_vllm.linear import model as route

    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    caplog.set_level(logging.INFO, "vllm")

    def load_model(*_: object) -> torch.nn.Module:
        return torch.nn.ModuleDict({"gate_up": loaded(linear_layers)})

    monkeypatch.setattr(route, "head_requested_by", lambda *_: KEPT_HEAD)
    monkeypatch.setattr(route, "share_table", lambda *_: "")
    monkeypatch.setattr(route, "adapters_and_readers", lambda *_: ("", ""))
    config = SimpleNamespace(hf_config=None, speculative_config=None, lora_config=None)
    route._load(load_model, None, config, config)
    said = [text for text in caplog.messages if "hk_backend: measured" in text]
    assert len(said) == 1
    assert said[0].startswith("hk_backend: measured 1 kind of linear layers in ")


class Group:
    """vLLM's group of two ranks, as one of them sees it."""

    world_size, ranks = 2, (4, 5)

    def __init__(self, rank: int) -> None:
        self.rank_in_group, self.cpu_group, self.sent = rank, self, list[Any]()

    def broadcast(self, held: list[Any], src: int, group: Any) -> None:
        assert (src, group) == (4, self)
        if self.rank_in_group == 0:
            self.sent.append(held[0])
        else:
            held[0] = self.sent.pop(0)


def test_ranks_take_the_answer_of_the_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer causes one broadcast, whatever either rank knows already."""
    assert ranks.tensor_parallel() is ALONE
    group = Group(0)
    monkeypatch.setattr(ranks, "get_tp_group", lambda: group)
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", group.broadcast)
    bench.let_the_engine_win()
    for _ in range(3):
        left(linear_layers, loaded(linear_layers))
    assert len(group.sent) == 3
    group.rank_in_group = 1
    bench.ours, bench.theirs = bench.theirs, bench.ours
    for _ in range(3):
        assert left(linear_layers, loaded(linear_layers)).startswith("faster without HK")
    assert group.sent == []
    assert len(bench.rows) == 1


# -- quantised layers


REQUEST = LinearRequest("cpu", torch.bfloat16, "fp8_e4m3fn", 512, 256)


@pytest.mark.parametrize("name", MEASURED)
def test_a_quantised_layer_that_vllm_computes_faster(
    bench: Bench,
    no_tiles: None,
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
) -> None:
    """HK and vLLM both compute the layer, which then goes to the next kernel of vLLM's list.

    It computes what that kernel computed.
    """
    scheme = LAYERS[name]
    shards = scheme.tensors()
    served = layer_of(linear_layers, scheme)
    assert is_attached(served)
    nothing: Any = None  # a decided layer is not measured again and needs none of these
    assert theirs_for(nothing, served, nothing, nothing) is None
    exact = {rows: scheme.expected(activations(rows, REQUEST), shards) for rows in bench.outputs}
    for rows, outputs in bench.outputs.items():
        for out in outputs:
            assert largest_error(out, exact[rows]) <= tolerance(torch.bfloat16), rows
            assert largest_error(out * 1.02, exact[rows]) > tolerance(torch.bfloat16)
    bench.let_the_engine_win()
    environment(HK_CACHE_DIR=str(tmp_path / "empty"))
    start_again(monkeypatch)
    layer = layer_of(linear_layers, LAYERS[name])
    assert not is_attached(layer)
    assert type(layer.hk_theirs).__name__ == "ChannelWiseTorchFP8ScaledMMLinearKernel"
    assert theirs_for(nothing, layer, nothing, nothing) is layer.hk_theirs
    assert linear_layers.why_left(layer).startswith("faster without HK: linear fp8_e4m3fn 512x256")
    for rows, (_, theirs) in bench.outputs.items():
        out = layer.quant_method.apply(layer, activations(rows, REQUEST))
        assert torch.equal(out, theirs)


@pytest.mark.parametrize("name", UNMEASURED)
def test_a_quantised_layer_for_which_vllm_has_no_kernel(
    bench: Bench, no_tiles: None, name: str
) -> None:
    """HK serves the layer even if it is slow: nothing else does."""
    bench.let_the_engine_win()
    layer = layer_of(linear_layers, LAYERS[name])
    assert is_attached(layer)
    assert layer.hk_decision.note.startswith(f"vLLM cannot compute it: {UNMEASURED[name]}")
    assert bench.rows == []


@pytest.mark.parametrize("missing", ["weight", "weight_scale"])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_tensor_that_is_missing_shows_whoever_computes_the_layer(
    bench: Bench, no_tiles: None, missing: str, is_known: bool
) -> None:
    """HK has filled the missing tensor's place with values that vLLM would compute with."""
    bench.let_the_engine_win()
    if is_known:
        layer_of(linear_layers, LAYERS[MEASURED[0]])
    checkpoint = LAYERS[MEASURED[0]]
    shards = checkpoint.tensors()
    shards[missing] = shards[missing][:2]
    with pytest.raises(CheckpointError, match=rf"v_proj.{missing}: not in the checkpoint"):
        layer_of(linear_layers, checkpoint, shards)
