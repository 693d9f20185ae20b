"""What `hk-backend quantize` writes, served by SGLang."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from safetensors.torch import load_file

from hk_backend import reference
from hk_backend.ops.head_format import KEPT
from hk_backend.quantize.job import Job
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.settings import Settings
from tests.integration.hk_sglang.e2e.test_linear import ENGINE, LENGTHS
from tests.integration.shared.checkpoints.scheme import Made, write
from tests.integration.shared.e2e.compare import assert_true_logprobs
from tests.integration.shared.e2e.engine import HK, Checkpoint, Reader
from tests.integration.shared.e2e.quantized import assert_all_by_hk, assert_true
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.models import random_prompts
from tests.quantize.checkpoint import tensors_of

pytestmark = pytest.mark.engine_proof

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Written:
    """`--format`, rounded to nearest, with the activations that are its default. `ignore`:
    decoder layers that are left as they are."""

    format: str
    head: str = KEPT
    ignore: int | None = None

    @property
    def activations(self) -> str:
        return RECIPES[self.format].activations[0]

    def __str__(self) -> str:
        head = f"-head-{self.head}" if self.head != KEPT else ""
        ignored = "" if self.ignore is None else f"-without-{self.ignore}"
        return f"written-{self.format}{head}{ignored}"

    def made(self, checkpoint: Checkpoint, folder: Path) -> Made:
        return _made(self, Path(checkpoint("tiny-64")), folder / "quantized")

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        model = str(self.made(checkpoint, folder).checkpoint)
        rounds = [Round(random_prompts(LENGTHS, seed=11), max_tokens=3)]
        return [Scenario(str(self), model, rounds, "float32", ENGINE, "float32_everywhere", HK)]


@cache
def _made(item: Written, source: Path, folder: Path) -> Made:
    """The tool's checkpoint; the truth is what the reference reads in it."""
    folder.mkdir(exist_ok=True)
    made = Made(folder / str(item), folder / f"{item}-truth")
    ignore = [] if item.ignore is None else [f"model.layers.{item.ignore}.*"]
    settings = Settings(item.format, method="rtn", head=item.head, ignore=ignore)
    job = Job(source, made.checkpoint, settings)
    job.run()
    stored, values, rounding = tensors_of(made.checkpoint), load_file(source / WEIGHTS), {}
    for name in job.plan.layers:
        codes, scales = (stored[f"{name}.{part.name}"] for part in job.recipe.stored(1, 32))
        weight = reference.dequantize(codes, job.recipe.format, scales)
        values[f"{name}.weight"] = weight.float().contiguous()
        how = {"activations": item.activations, "format": job.recipe.format}
        rounding[name] = {**how, "input_scale": None}
    if item.head != KEPT:
        recipe = RECIPES[item.head]
        codes, scales = recipe.quantize(values["lm_head.weight"])
        values["lm_head.weight"] = recipe.dequantize(codes, scales)
    write(source, made.truth, values, {})
    (made.truth / "activations.json").write_text(json.dumps(rounding))
    return made


HEADED = Written("fp8", "mxfp6_e2m3")
IGNORING = [Written("mxfp4", ignore=0), Written("mxfp6_e2m3", ignore=0)]


@pytest.mark.parametrize("item", [*map(Written, RECIPES), HEADED, *IGNORING], ids=str)
def test_every_format(item: Written, served: Reader, checkpoint: Checkpoint, folder: Path) -> None:
    """All layers by HK, with the written values, and inputs rounded as the format says."""
    result = served(str(item)).only
    assert_all_by_hk(result)
    assert_true(item, result, item.made(checkpoint, folder).truth, "float32")
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(result.rounds[0].answers, checkpoint("tiny-64"))
