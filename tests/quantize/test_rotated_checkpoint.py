"""A rotated checkpoint: what it says, and that readers who cannot rotate inputs refuse it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.quantization import QuantizationConfig
from pydantic import ValidationError
from safetensors.torch import load_file

from hk_backend import reference
from hk_backend.ops.rotation import ROTATION, ROTATION_KEY
from hk_backend.quantize import perplexity
from hk_backend.quantize.folding import O_PROJ
from hk_backend.quantize.job import Job
from hk_backend.quantize.method import Method
from hk_backend.quantize.settings import Settings
from hk_backend.reference.rotation import rotated
from hk_backend.terms.folds import FOLD_KEY, HEADS
from tests.quantize.checkpoint import config_of, tensors_of
from tests.quantize.conftest import WEIGHTS

REFUSED = rf"{ROTATION_KEY}\s+Extra inputs are not permitted"


@pytest.fixture(scope="module")
def job(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """`--format mxfp4`: rotated by default."""
    made = Job(model, tmp_path_factory.mktemp("rotated") / "out", Settings("mxfp4"))
    made.run()
    return made


def config(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = config_of(job.out.directory)["quantization_config"]
    return found


def test_what_it_says(job: Job, model: Path, tmp_path: Path) -> None:
    """One more key than without a rotation, where the weight is described; but not of o_proj,
    whose inputs v_proj rotates, which another key says."""
    assert job.method == Method("rotated", ROTATION, HEADS, (O_PROJ,))
    plain = Job(model, tmp_path / "plain", Settings("mxfp4", method="scales"))
    plain.run()
    found, others = config(job), config(plain)
    assert found["config_groups"]["group_0"]["weights"].pop(ROTATION_KEY) == ROTATION
    of_o_proj = found["config_groups"].pop("group_1")
    assert of_o_proj.pop("targets") == [r"re:.*self_attn\.o_proj$"]
    assert found.pop(FOLD_KEY) == HEADS
    assert found == others
    assert of_o_proj.items() <= others["config_groups"]["group_0"].items()


def test_the_codes_are_of_the_rotated_weight(job: Job) -> None:
    """By the reference, and the report's errors are theirs."""
    tensors, original = tensors_of(job.out.directory), load_file(job.source.directory / WEIGHTS)
    for found in job.layer_errors():
        parts = [tensors[name] for name in job.plan.layers[found.layer].names]
        values = reference.dequantize(parts[0], "mxfp4", parts[1])
        weight = original[f"{found.layer}.weight"].double()
        values = rotated(values, ROTATION)
        if found.layer.endswith("v_proj"):
            values = rotated(values.T, ROTATION).T
        error = (values - weight).norm() / weight.norm()
        assert found.error == pytest.approx(float(error), rel=1e-5)
        assert found.error < 0.2


def test_compressed_tensors_refuses(job: Job) -> None:
    with pytest.raises(ValidationError, match=REFUSED):
        QuantizationConfig.model_validate(config(job))


def test_vllm_refuses(job: Job) -> None:
    """As installed: while it reads the config, before any weight; without the key it is served."""
    quantization = pytest.importorskip(
        "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors"
    )
    read = quantization.CompressedTensorsConfig.from_config
    with pytest.raises(ValidationError, match=REFUSED):
        read(config(job))
    others = config(job)
    del others["config_groups"]["group_0"]["weights"][ROTATION_KEY]
    read(others)


def test_transformers_refuses(job: Job) -> None:
    from transformers import AutoModelForCausalLM

    with pytest.raises(ValidationError, match=REFUSED):
        AutoModelForCausalLM.from_pretrained(job.out.directory)


@pytest.mark.parametrize("format", ["mxfp6_e2m3", "mxfp6_e3m2"])
def test_six_bits_are_hk_s_own(format: str, model: Path, tmp_path: Path) -> None:
    """Quark has no word for a rotation, and its readers skip what they do not know: so no reader
    but HK knows the method."""
    from transformers import AutoModelForCausalLM

    rotated = Job(model, tmp_path / "out", Settings(format, method="rotated"))
    rotated.run()
    assert config(rotated) == {
        "quant_method": "hk_mxfp6",
        "format": format,
        "activations": "mx",
        "rotation": ROTATION,
        "ignore": ["lm_head"],
    }
    with pytest.raises(RuntimeError, match=r"size mismatch|ignore_mismatched_sizes"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    quantization = pytest.importorskip("vllm.model_executor.layers.quantization")
    if "hk_mxfp6" not in quantization.QUANTIZATION_METHODS:  # the plugin is not loaded here
        with pytest.raises(ValueError, match="hk_mxfp6"):
            quantization.get_quantization_config("hk_mxfp6")


@pytest.mark.parametrize(
    "spoilt", ["not rotated", "another block", "o_proj, too", "a scale one step off"]
)
def test_perplexity_notices(
    spoilt: str, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The served model is close to the original's logits, and no longer if something is wrong."""
    tokens = torch.randint(2, 10_000, (1, 48), generator=torch.Generator().manual_seed(0))

    def logits(rotations: dict[int, int], off: bool) -> torch.Tensor:
        model = perplexity.load_model(job.source.directory)
        stored = tensors_of(job.out.directory)
        for layer, item in job.plan.layers.items():
            codes, scales = (stored[name] for name in item.names)
            scales = scales + 1 if off else scales
            right = job.serving_of(layer)
            serving = replace(right, rotation=rotations[right.rotation])
            model.set_submodule(layer, serving.layer(codes, scales, None))
        with torch.inference_mode():
            found: torch.Tensor = model(tokens).logits.float()
        return found

    with torch.inference_mode():
        exact = perplexity.load_model(job.source.directory)(tokens).logits
    right_ones = {0: 0, ROTATION: ROTATION}
    changed = {
        "not rotated": {0: 0, ROTATION: 0},
        "another block": {0: 0, ROTATION: 32},
        "o_proj, too": {0: ROTATION, ROTATION: ROTATION},
    }
    right = (logits(right_ones, off=False) - exact).norm()
    off = spoilt == "a scale one step off"
    wrong = (logits(changed.get(spoilt, right_ones), off) - exact).norm()
    assert wrong > 1.3 * right
