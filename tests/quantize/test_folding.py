"""Rotations that are folded into other weights leave the model the same, to the rounding. A rotated
checkpoint says so, and readers who cannot rotate inputs refuse it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.quantization import QuantizationConfig
from pydantic import ValidationError
from safetensors.torch import load_file

from hk_backend.ops.rotation import ROTATION, ROTATION_KEY
from hk_backend.quantize import perplexity
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.folding import O_PROJ, V_PROJ, fold
from hk_backend.quantize.job import Job
from hk_backend.quantize.method import Method
from hk_backend.quantize.perplexity import load_model
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.settings import Settings
from hk_backend.quantize.source import PROJECTIONS, open_source
from hk_backend.reference.rotation import rotated
from hk_backend.terms.folds import ALL, FOLD_KEY, HEADS, NONE
from tests.quantize.checkpoint import (
    EMBEDDING,
    HEAD,
    WEIGHTS,
    change_config,
    change_weights,
    config_of,
    finished,
    refused,
    tensors_of,
)


@pytest.fixture
def trained(writable: Path) -> Path:
    """The tiny model with what only a trained one has: gains of norms, and biases."""
    change_config(writable, attention_bias=True, mlp_bias=True)
    generator, added = torch.Generator().manual_seed(3), {}
    for name, tensor in load_file(writable / WEIGHTS).items():
        if name.endswith("_proj.weight"):
            added[name.replace("weight", "bias")] = torch.randn(len(tensor), generator=generator)
        elif name.endswith("norm.weight"):
            added[name] = torch.randn(len(tensor), generator=generator)
    change_weights(writable, added)
    return writable


class Turning(torch.nn.Module):
    """A layer of `method` before rounding. It rotates its input if that is left to do."""

    def __init__(self, method: Method, layer: str, linear: Any, rotation: int) -> None:
        super().__init__()
        self.target = method.target(linear.weight.data, layer)
        self.bias = linear.bias
        self.rotation = rotation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = rotated(x, self.rotation, x.dtype) if self.rotation else x
        return torch.nn.functional.linear(x, self.target, self.bias)


def logits(checkpoint: Path, change: Callable[[Any], None] = lambda model: None) -> torch.Tensor:
    model: Any = load_model(checkpoint)
    change(model)
    tokens = torch.randint(2, 10_000, (1, 60), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        found: torch.Tensor = model(tokens).logits
    return found


def difference(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


def unrounded(
    checkpoint: Path, wanted: str, block: int, twice: bool = False
) -> Callable[..., None]:
    """Gives a model the folded weights of `checkpoint`, not rounded."""
    plain = open_source(checkpoint)
    source, name, ends = fold(plain, RECIPES["mxfp4"], block, wanted, plain.layers)
    method = Method("rotated", block, name, ends)

    def change(model: Any) -> None:
        model.load_state_dict({name: source.read(name) for name in source.tensors})
        for layer in model.model.layers:
            for name in PROJECTIONS:
                rotation = block if twice else method.while_serving(name)
                linear = layer.get_submodule(name)
                layer.set_submodule(name, Turning(method, name, linear, rotation))

    return change


@pytest.mark.parametrize("block", [32, 64])
@pytest.mark.parametrize("wanted", [HEADS, ALL])
def test_the_model_is_the_same(wanted: str, block: int, trained: Path) -> None:
    """Inputs that come rotated and are rotated again give another model."""
    exact = logits(trained)
    assert difference(logits(trained, unrounded(trained, wanted, block)), exact) < 1e-5
    again = logits(trained, unrounded(trained, wanted, block, twice=True))
    assert difference(again, exact) > 0.1


@pytest.mark.parametrize(
    ("wanted", "ignored"), [(HEADS, ["*.1.self_attn.*"]), (ALL, ["*.0.mlp.*", "*.2.*"])]
)
def test_what_is_written_is_the_model(
    wanted: str, ignored: list[str], trained: Path, tmp_path: Path
) -> None:
    """The served model, in 8 bits, is as near to the original as without folding. So it is where
    some layers are left unquantised, whose weights others have rotated."""
    exact = logits(trained)

    def error_of(fold: str) -> float:
        settings = Settings("mxfp8", "none", ignored, method="rotated", fold=fold)
        job = finished(trained, tmp_path / fold, settings)
        served = logits(trained, lambda model: perplexity.serve_quantized(model, job))
        return difference(served, exact)

    plain = error_of(NONE)
    assert 0 < plain < 0.1
    # errors of other codes, as many and as large: of a sum of so many the size hardly varies
    assert error_of(wanted) < 1.3 * plain


def test_what_is_not_quantised(half_model: Path, trained: Path, tmp_path: Path) -> None:
    """Other tensors stay in their type, in a folder of the same names; biases are rotated with
    outputs."""
    job = finished(half_model, tmp_path / "half", Settings("mxfp4", fold=ALL))
    found = tensors_of(tmp_path / "half")
    plain = {name for name in found if name in job.source.tensors and "_proj" not in name}
    assert {"model.norm.weight", "lm_head.weight", "model.embed_tokens.weight"} < plain
    for name in plain:
        assert found[name].dtype == torch.bfloat16
        assert tuple(found[name].shape) == job.source.tensors[name].shape
    finished(trained, tmp_path / "out", Settings("mxfp4", rotation=64))
    found, original = tensors_of(tmp_path / "out"), load_file(trained / WEIGHTS)
    biases = [name for name in original if name.endswith("bias")]
    assert len(biases) == 7 * 3
    for name in biases:
        expected = rotated(original[name], 64).float() if V_PROJ in name else original[name]
        assert torch.equal(found[name], expected)


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (Settings("mxfp4"), HEADS),
        (Settings("mxfp4", fold=ALL), ALL),
        (Settings("mxfp4", method="scales"), NONE),
        (Settings("mxfp4", rotation=128), NONE),  # a block of two heads
        # one rotation for all layers
        (Settings("mxfp6_e2m3", method="rotated"), NONE),
        (Settings("mxfp4", "mxfp6_e2m3", method="rotated"), NONE),
        (Settings("mxfp4", ignore=["*.1.self_attn.[qkv]_proj"]), NONE),
        (Settings("mxfp4", ignore=["*.self_attn.*"], fold=ALL), ALL),
        (Settings("mxfp4", ignore=["*.1.self_attn.o_proj"]), NONE),
    ],
)
def test_what_is_folded(settings: Settings, found: str, model: Path, tmp_path: Path) -> None:
    """The configuration names the folds, and the rotation that is left to do for each layer."""
    job = Job(model, tmp_path / "out", settings)
    assert job.method.fold == found
    done = {NONE: (), HEADS: (O_PROJ,), ALL: (*PROJECTIONS[:3], O_PROJ, *PROJECTIONS[4:6])}[found]
    if found == ALL and settings.ignore:
        done = tuple(name for name in done if name != O_PROJ)
    for name in PROJECTIONS:
        rotation = 0 if name in done else job.method.rotation
        assert job.serving_of(f"model.layers.0.{name}").rotation == rotation
    job.run()
    config = config_of(tmp_path / "out")["quantization_config"]
    assert config.get(FOLD_KEY, NONE) == found


def test_a_tied_head_cannot_be_folded_alone(writable: Path, tmp_path: Path) -> None:
    """A checkpoint may hold the table once or twice."""
    change_config(writable, tie_word_embeddings=True)
    for held in (load_file(writable / WEIGHTS)[EMBEDDING].clone(), None):
        change_weights(writable, {HEAD: held})
        why = "shares the embedding's table"
        refused(why, writable, tmp_path / "out", Settings("mxfp4", fold=ALL))


def test_qwen3(tmp_path: Path) -> None:
    """Norms of heads, which do not read the residual stream, stay as they are."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "head_dim": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 10_000}
    made = Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, tie_word_embeddings=False))
    for name, values in made.named_parameters():
        if name.endswith("norm.weight"):
            values.data.normal_(1.0, 0.5, generator=torch.Generator().manual_seed(len(name)))
    made.save_pretrained(tmp_path)
    found = logits(tmp_path, unrounded(tmp_path, ALL, 64))
    assert difference(found, logits(tmp_path)) < 1e-5


@pytest.mark.parametrize("between", ["OLMo clips", "BitNet norms"])
def test_nothing_is_folded_through_what_is_not_linear(between: str, tmp_path: Path) -> None:
    """A clip or a norm between v_proj and o_proj prevents folding: the model is rotated while
    served."""
    from transformers import BitNetConfig, BitNetForCausalLM, OlmoConfig, OlmoForCausalLM

    sizes = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 10_000}
    made: Any = (
        OlmoForCausalLM(OlmoConfig(**sizes, **heads, clip_qkv=0.01, pad_token_id=1))
        if between == "OLMo clips"
        else BitNetForCausalLM(BitNetConfig(**sizes, **heads, tie_word_embeddings=False))
    )
    made.save_pretrained(tmp_path / "model")
    settings = Settings("mxfp8", "none", method="rotated")
    job = finished(tmp_path / "model", tmp_path / "out", settings)
    assert job.method.fold == NONE
    served = logits(tmp_path / "model", lambda model: perplexity.serve_quantized(model, job))
    assert difference(served, logits(tmp_path / "model")) < 0.2


def test_a_folder_from_before_is_not_taken_up(model: Path, tmp_path: Path) -> None:
    """A folder of a version that folded nothing would be read wrongly."""
    finished(model, tmp_path / "out", Settings("mxfp4"))
    report = tmp_path / "out" / "hk_quantize.json"
    written = json.loads(report.read_text())
    del written["settings"]["fold"]
    report.write_text(json.dumps(written))
    with pytest.raises(QuantizeError, match=r"started with --fold none, now it is --fold heads"):
        Job(model, tmp_path / "out", Settings("mxfp4")).run()


REFUSED = rf"{ROTATION_KEY}\s+Extra inputs are not permitted"


@pytest.fixture(scope="module")
def job(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """`--format mxfp4`: rotated by default."""
    return finished(model, tmp_path_factory.mktemp("rotated") / "out", Settings("mxfp4"))


def config(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = config_of(job.out.directory)["quantization_config"]
    return found


def test_what_it_says(job: Job, model: Path, tmp_path: Path) -> None:
    """The description of the weight has one more key than without a rotation. o_proj lacks it,
    since v_proj rotates its inputs: another key says so."""
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
    """The installed readers refuse the config before any weight; without the key it is served."""
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


@pytest.mark.parametrize(
    ("format", "activations"),
    [("mxfp6_e2m3", ""), ("mxfp6_e3m2", ""), ("mxfp4", "mxfp6_e2m3")],
)
def test_six_bits_are_hk_s_own(format: str, activations: str, model: Path, tmp_path: Path) -> None:
    """Quark has no word for a rotation, and its readers skip what they do not know. So only HK
    knows the method."""
    from transformers import AutoModelForCausalLM

    method = f"hk_{format.partition('_')[0]}"
    rotated = finished(model, tmp_path / "out", Settings(format, activations, method="rotated"))
    assert config(rotated) == {
        "quant_method": method,
        "format": format,
        "activations": activations or "mx",
        "rotation": ROTATION,
        "ignore": ["lm_head"],
    }
    with pytest.raises(RuntimeError, match=r"size mismatch|ignore_mismatched_sizes"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    quantization = pytest.importorskip("vllm.model_executor.layers.quantization")
    if method not in quantization.QUANTIZATION_METHODS:  # the plugin is not loaded here
        with pytest.raises(ValueError, match=method):
            quantization.get_quantization_config(method)
