"""A layer's checkpoint: folded rotations, reloads, scales of shards, and names of tensors."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hk_backend.engine.linear.checkpoint_rotations import check_fold, check_reload, rotations_in
from hk_backend.engine.linear.checkpoint_tensors import UNSET, checked_scales
from hk_backend.engine.linear.model_files import remember_names, was_loaded
from hk_backend.engine.linear.shards import CheckpointError, Shards
from hk_backend.engine.linear.shared_table import is_empty
from hk_backend.quantize.recipe import RECIPES
from hk_backend.terms.folds import ALL, FOLD_KEY, HEADS


@pytest.mark.parametrize(
    ("fold", "adapters", "readers"),
    [(None, "LoRA adapters", "a drafter"), (HEADS, "", "a drafter"), (ALL, "", "")],
)
def test_accepted(fold: str | None, adapters: str, readers: str) -> None:
    check_fold({FOLD_KEY: fold} if fold else {}, adapters, readers)


@pytest.mark.parametrize(
    ("fold", "adapters", "readers", "why"),
    [
        ("most", "", "", r"hk_folded 'most' is not valid: expected one of none, heads, all"),
        ([], "", "", r"hk_folded \[\] is not valid: expected one of"),
        (HEADS, "LoRA adapters", "", r"'heads' .* with LoRA adapters, .* with --fold none"),
        (ALL, "LoRA adapters", "", r"'all' .* with LoRA adapters, .* with --fold none"),
        (ALL, "", "a drafter", r"'all' .* with a drafter: .* rotated: .* --fold heads or none"),
    ],
)
def test_refused(fold: object, adapters: str, readers: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_fold({FOLD_KEY: fold}, adapters, readers)


MXFP4, MXFP6 = RECIPES["mxfp4"], RECIPES["mxfp6_e2m3"]
ONLINE = {"quant_method": "hk_mxfp4", "serialized": False, "rotation": 32}


def rotated(by: int, folded: tuple[str, ...] = ()) -> dict[str, Any]:
    return MXFP4.quantization_config("mx", [], by, folded)


def checkpoint(folder: Path, config: dict[str, Any] | None) -> str:
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return str(folder)


@pytest.mark.parametrize(
    ("served", "new"),
    [
        ({}, None),
        (rotated(0), rotated(0)),
        (rotated(64), rotated(64)),
        (rotated(64), RECIPES["mxfp4"].quantization_config("mx", ["model.layers.0.x"], 64)),
        (MXFP6.quantization_config("mx", [], 32), MXFP6.quantization_config("mx", [], 32)),
        (rotated(64, ("self_attn.o_proj",)), rotated(64, ("self_attn.o_proj",))),
        (ONLINE, None),  # a reload is rotated, too
    ],
)
def test_alike(served: dict[str, Any], new: dict[str, Any] | None, tmp_path: Path) -> None:
    check_reload(served, checkpoint(tmp_path, new))


@pytest.mark.parametrize(
    ("served", "new", "why"),
    [
        (
            rotated(64),
            rotated(32),
            r"are rotated \(Linear: 32\), .* rotated \(Linear: 64\): start",
        ),
        (rotated(64), rotated(0), r"are not rotated, .* are rotated \(Linear: 64\)"),
        (rotated(64), None, "are not rotated, those"),
        (rotated(0), rotated(64), r"\(Linear: 64\), those that they would replace are not rotated"),
        (rotated(64), rotated(64, ("self_attn.o_proj",)), "o_proj"),
        (rotated(64) | {"hk_folded": "heads"}, rotated(64), "hk_folded: heads"),
        (
            MXFP6.quantization_config("mx", [], 32),
            MXFP6.quantization_config("mx", [], 64),
            r"\(rotation: 64\), .*\(rotation: 32\)",
        ),
    ],
)
def test_otherwise(
    served: dict[str, Any], new: dict[str, Any] | None, why: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=why):
        check_reload(served, checkpoint(tmp_path, new))


def test_weights_alone(tmp_path: Path) -> None:
    check_reload(rotated(64), str(tmp_path))
    check_reload(rotated(64), str(tmp_path / "nowhere"))


GATE_UP = "model.layers.0.mlp.gate_up_proj"


def layer_of(widths: list[int]) -> Any:
    return SimpleNamespace(prefix=GATE_UP, logical_widths=widths)


def weight_of(widths: list[int]) -> torch.Tensor:
    return torch.zeros(sum(widths), 128, dtype=torch.float8_e4m3fn)


@pytest.mark.parametrize(
    ("widths", "rows"),
    [
        ([128, 256], [[0], [1, 2]]),
        ([64, 64], [[0], [0]]),
        ([192, 192], [[0, 1], [1, 2]]),
        ([128, 200], [[0], [1, 2]]),
    ],
)
def test_each_shard_has_every_block_that_it_touches(
    widths: list[int], rows: list[list[int]]
) -> None:
    blocks = torch.arange(-(-sum(widths) // 128)).float()[:, None]
    shards = Shards.of(layer_of(widths)).split(weight_of(widths), blocks)
    assert [scales.flatten().tolist() for _, scales in shards] == rows


def test_a_missing_scale_of_a_partial_block_is_named() -> None:
    """The up projection has a single block, a partial one, and its scale is not set."""
    shards, weight = Shards.of(layer_of([128, 64])), weight_of([128, 64])
    scales = torch.tensor([[1.0], [UNSET]])
    with pytest.raises(CheckpointError, match=r"0\.mlp\.up_proj\.weight_scale: not in the check"):
        checked_scales(shards, weight, scales, "weight_scale")
    checked_scales(shards, weight, torch.ones(2, 1), "weight_scale")


MERGED, SHARDED = (f"model.layers.0.self_attn.{name}.weight_scale" for name in ("qkv", "q_proj"))


def test_names_are_those_of_the_last_load() -> None:
    """One load has a merged layer, the other has its shards: only names of the last load count."""
    for loaded, other in ((MERGED, SHARDED), (SHARDED, MERGED)):
        assert [name for name, _ in remember_names([(loaded, torch.ones(1))])] == [loaded]
        assert was_loaded(loaded)
        assert was_loaded(f"language_{loaded}"), "what stands before the layer's number may differ"
        assert not was_loaded(other)


def test_a_checkpoint_that_names_no_rotation_has_none() -> None:
    assert rotations_in({"quant_method": "hk_fp8"}) == {}
    for key in ("transform_config", "rotation_config", "hadamard_config", "spinquant_config"):
        found = {"quant_method": "any", "config_groups": {"a": {"targets": ["Linear"]}}}
        assert rotations_in({**found, key: {"of": "others"}}) == {key: {"of": "others"}}
    assert rotations_in({"quant_method": "hk_mxfp4", "rotation": 64}) == {"rotation": 64}


def test_a_shared_table_is_empty_until_one_is_loaded_again() -> None:
    released, loaded = torch.empty(0), torch.ones(1)
    assert is_empty(SimpleNamespace(weight=released, hk_rows=(8, 8)))
    assert not is_empty(SimpleNamespace(weight=loaded, hk_rows=(8, 8)))
    assert not is_empty(SimpleNamespace(weight=released))


def channels(scales: list[float]) -> list[float]:
    """The scale of each channel of q, k and v."""
    shards = Shards.of(SimpleNamespace(prefix="0.attn.qkv_proj", logical_widths=[2, 1, 1]))
    found = checked_scales(shards, weight_of([2, 1, 1]), torch.tensor(scales), "weight_scale")
    return found.tolist()


def test_each_channel_has_the_scale_of_its_shard() -> None:
    assert channels([1.0, 2.0, 3.0]) == [1.0, 1.0, 2.0, 3.0]


def test_one_scale_of_a_merged_tensor_is_that_of_all_shards() -> None:
    assert channels([2.0, UNSET, UNSET]) == [2.0] * 4


@pytest.mark.parametrize(
    ("scales", "missing"),
    [([UNSET, 2.0, 3.0], "q"), ([1.0, UNSET, 3.0], "k"), ([1.0, 2.0, UNSET], "v")],
)
def test_a_shard_without_a_scale_is_named(scales: list[float], missing: str) -> None:
    with pytest.raises(CheckpointError, match=rf"^0\.attn\.{missing}_proj\.weight_scale: not in"):
        channels(scales)
