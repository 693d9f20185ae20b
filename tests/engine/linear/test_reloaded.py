"""A checkpoint for a running model is rotated as what it replaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hk_backend.engine.linear.reloaded import check_reload
from hk_backend.quantize.recipe import RECIPES

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
        (ONLINE, None),  # rotated while it is loaded, again
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
