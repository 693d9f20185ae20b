"""Linear layers that HK has quantised itself, in running engines of either kind."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from hk_backend import reference
from hk_backend.ops.head_format import EMBEDDING_KEY, HEAD_KEY, IN_HEAD, KEPT
from hk_backend.quantize.job import Job
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.settings import Settings
from hk_backend.terms.weight_format import rotated_activations
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.checkpoints.scheme import write
from tests.integration.shared.e2e.compare import assert_true_answers, assert_true_logprobs
from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.linear_cases import Case
from tests.integration.shared.e2e.quantized import assert_all_by_hk, assert_true
from tests.integration.shared.e2e.rewritten import fp8_values, mx_values, rewritten
from tests.integration.shared.e2e.scenario import Scenario
from tests.quantize.checkpoint import WEIGHTS, change_config, change_weights, tensors_of


class Online(Case):
    """Weights that are quantised while they are loaded; `scheme`: the method.

    Inputs are not rounded, so that a float32 engine and the truth round the same numbers: the
    weights.
    """

    def make(self, source: Path, into: Path) -> Made:
        values = fp8_values if self.scheme == "hk_fp8" else mx_values("mxfp6_e3m2")
        truth = into / f"{self}-truth"
        return Made(source, truth if truth.exists() else rewritten(source, truth, values))

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        found = self.scenario(str(self.made(checkpoint, folder).checkpoint))
        format = {} if self.scheme == "hk_fp8" else {"format": "mxfp6_e3m2"}
        more = self.how.online(self.scheme, {"activations": "none"} | format)
        return [replace(found, engine=found.engine | more)]

    def check(self, served: Reader, made: Made) -> None:
        """Hold that the weights are the format's, and not the checkpoint's own."""
        found = served(str(self)).only
        assert_all_by_hk(found)
        assert_true_answers(found.rounds[0].answers, str(made.truth))
        with pytest.raises(AssertionError, match="log-probability"):
            assert_true_logprobs(found.rounds[0].answers, str(made.checkpoint))


@dataclass(frozen=True)
class Written(Case):
    """A checkpoint that `hk-backend quantize --format` writes, rounded to nearest.

    Activations are the format's default. `scheme`: the format; `ignore`: a decoder layer that is
    left as it is.
    """

    head: str = KEPT
    ignore: int | None = None

    @property
    def activations(self) -> str:
        return RECIPES[self.scheme].activations[0]

    def __str__(self) -> str:
        head = f"-head-{self.head}" if self.head != KEPT else ""
        ignored = "" if self.ignore is None else f"-without-{self.ignore}"
        return f"written-{self.scheme}{head}{ignored}"

    def make(self, source: Path, into: Path) -> Made:
        """Make the checkpoint; its truth has the values that the reference reads in it."""
        made = Made(into / str(self), into / f"{self}-truth")
        if made.truth.exists():
            return made
        ignore = [] if self.ignore is None else [f"model.layers.{self.ignore}.*"]
        settings = Settings(self.scheme, method="rtn", head=self.head, ignore=ignore)
        job = Job(source, made.checkpoint, settings)
        job.run()
        write_truth(job, made, source, self.head)
        return made

    def check(self, served: Reader, made: Made) -> None:
        """Hold that HK computed all layers, with the written values and the format's rounding."""
        found = served(str(self)).only
        assert_all_by_hk(found)
        assert_true(self, found, made.truth, "float32")


def write_truth(job: Job, made: Made, source: Path, head: str = KEPT) -> None:
    """Write the truth about what `job` wrote: the values that the reference reads in it.

    The job folded no rotation.
    """
    stored, values, rounding = tensors_of(made.checkpoint), load_file(source / WEIGHTS), {}
    rotation = job.method.rotation
    for name in job.plan.layers:
        codes, scales = (stored[f"{name}.{part.name}"] for part in job.recipe.stored(1, 32))
        weight = reference.dequantize(codes, job.recipe.format, scales)
        values[f"{name}.weight"] = weight.float().contiguous()
        rounding[name] = {
            "activations": rotated_activations(job.activations, rotation),
            "rotation": rotation,
            "format": job.recipe.format,
            "input_scale": None,
        }
    if head != KEPT:
        recipe = RECIPES[head]
        values["lm_head.weight"] = recipe.dequantize(*recipe.quantize(values["lm_head.weight"]))
    write(source, made.truth, values, {})
    (made.truth / "activations.json").write_text(json.dumps(rounding))


class HeadInSixBits(Case):
    """A head and an embedding with one table, packed once in 6 bits.

    The truth has the packed values in its one table, in float32.
    """

    def make(self, source: Path, into: Path) -> Made:
        into = into / "tied"
        made = Made(into / self.scheme, into / f"{self.scheme}-truth")
        if made.truth.exists():
            return made
        into.mkdir()
        found, name = make(SCHEMES[self.scheme], source, into), "model.embed_tokens.weight"
        recipe, table = RECIPES["mxfp6_e2m3"], load_file(source / WEIGHTS)[name]
        asked = SCHEMES[self.scheme].config | {HEAD_KEY: "mxfp6_e2m3", EMBEDDING_KEY: IN_HEAD}
        for folder, values, config in (
            (found.checkpoint, table, {"quantization_config": asked}),
            (found.truth, recipe.dequantize(*recipe.quantize(table)), {}),
        ):
            change_weights(folder, {name: values, "lm_head.weight": None})
            change_config(folder, tie_word_embeddings=True, **config)
        return found

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        [one] = super().scenarios(checkpoint, folder)
        return [self.on_ranks(one, "float32") if self.ranks > 1 else one]
