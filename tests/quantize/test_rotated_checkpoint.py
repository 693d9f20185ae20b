"""A rotated checkpoint: what it says, and that readers who cannot rotate inputs refuse it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compressed_tensors.quantization import QuantizationConfig
from pydantic import ValidationError

from hk_backend.ops.rotation import ROTATION, ROTATION_KEY
from hk_backend.quantize.folding import O_PROJ
from hk_backend.quantize.job import Job
from hk_backend.quantize.method import Method
from hk_backend.quantize.settings import Settings
from hk_backend.terms.folds import FOLD_KEY, HEADS
from tests.quantize.checkpoint import config_of, finished

REFUSED = rf"{ROTATION_KEY}\s+Extra inputs are not permitted"


@pytest.fixture(scope="module")
def job(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """`--format mxfp4`: rotated by default."""
    return finished(model, tmp_path_factory.mktemp("rotated") / "out", Settings("mxfp4"))


def config(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = config_of(job.out.directory)["quantization_config"]
    return found


def test_what_it_says(job: Job, model: Path, tmp_path: Path) -> None:
    """One more key than without a rotation, where the weight is described; but not of o_proj,
    whose inputs v_proj rotates, which another key says."""
    assert job.method == Method("rotated", ROTATION, HEADS, (O_PROJ,))
    plain = finished(model, tmp_path / "plain", Settings("mxfp4", method="scales"))
    found, others = config(job), config(plain)
    assert found["config_groups"]["group_0"]["weights"].pop(ROTATION_KEY) == ROTATION
    of_o_proj = found["config_groups"].pop("group_1")
    assert of_o_proj.pop("targets") == [r"re:.*self_attn\.o_proj$"]
    assert found.pop(FOLD_KEY) == HEADS
    assert found == others
    assert of_o_proj.items() <= others["config_groups"]["group_0"].items()


def test_readers_who_cannot_rotate_refuse(job: Job) -> None:
    """As installed: while they read the config, before any weight; without the key it is served."""
    from transformers import AutoModelForCausalLM

    quantization = pytest.importorskip(
        "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors"
    )
    read = quantization.CompressedTensorsConfig.from_config
    for reader, given in (
        (QuantizationConfig.model_validate, config(job)),
        (read, config(job)),
        (AutoModelForCausalLM.from_pretrained, job.out.directory),
    ):
        with pytest.raises(ValidationError, match=REFUSED):
            reader(given)
    others = config(job)
    del others["config_groups"]["group_0"]["weights"][ROTATION_KEY]
    read(others)


@pytest.mark.parametrize("format", ["mxfp6_e2m3", "mxfp6_e3m2"])
def test_six_bits_are_hk_s_own(format: str, model: Path, tmp_path: Path) -> None:
    """Quark has no word for a rotation, and its readers skip what they do not know: so no reader
    but HK knows the method."""
    from transformers import AutoModelForCausalLM

    rotated = finished(model, tmp_path / "out", Settings(format, method="rotated"))
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
