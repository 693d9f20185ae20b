"""A head and an embedding with one table, packed once in 6 bits, in running engines, on one rank
and on two: they answer what the packed values say."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hk_backend.ops.head_format import EMBEDDING_KEY, HEAD_KEY, IN_HEAD
from hk_backend.quantize.recipe import RECIPES
from tests.integration.hk_vllm.e2e.engine import SPAWNED, serve
from tests.integration.hk_vllm.e2e.quantized import ENGINE, scenario
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.e2e.compare import assert_true_logprobs
from tests.integration.shared.e2e.engine import HK, Engines
from tests.integration.shared.e2e.quantized import assert_all_by_hk, assert_true
from tests.models import tiny_llama

SCHEME, FORMAT = SCHEMES["ct-channel-weight-only"], "mxfp6_e2m3"
TABLE, WEIGHTS = "model.embed_tokens.weight", "model.safetensors"
RANKS = SPAWNED | {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}

pytestmark = pytest.mark.slow


def changed(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """A checkpoint whose config.json and tensors are these, too."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    held = load_file(folder / WEIGHTS)
    held.pop("lm_head.weight", None)
    save_file(held | tensors, folder / WEIGHTS, {"format": "pt"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The truth has the head's values in its one table, in float32."""
    folder = tmp_path_factory.mktemp("heads")
    source = tiny_llama(folder, 64)
    changed(source, {"tie_word_embeddings": True}, {})
    found = make(SCHEME, source, folder)
    asked = SCHEME.config | {HEAD_KEY: FORMAT, EMBEDDING_KEY: IN_HEAD}
    changed(found.checkpoint, {"quantization_config": asked}, {})
    recipe, table = RECIPES[FORMAT], load_file(source / WEIGHTS)[TABLE]
    changed(found.truth, {}, {TABLE: recipe.dequantize(*recipe.quantize(table))})
    return found


@pytest.fixture(scope="module")
def served(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Engines:
    one = replace(scenario(SCHEME, made, "float32"), name="one")
    ranks = ENGINE | {"tensor_parallel_size": 2}
    two = replace(one, name="two", engine=ranks, environment=RANKS)
    return serve([one, two], tmp_path_factory.mktemp("served"), HK)


@pytest.mark.parametrize("name", ["one", "two"])
def test_packed_once(name: str, served: Engines, made: Made, tmp_path: Path) -> None:
    """The table as it was in the file would answer something else."""
    result = served[name]
    assert_all_by_hk(result)
    assert_true(SCHEME, result, made.truth, "float32")
    other = Path(shutil.copytree(made.truth, tmp_path / "other"))
    changed(other, {}, {TABLE: load_file(made.checkpoint / WEIGHTS)[TABLE]})
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(result.rounds[0].answers, str(other))
