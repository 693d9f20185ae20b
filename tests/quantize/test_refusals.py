"""Models and settings that cannot be quantised are refused before anything is written, by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hk_backend.ops.head_format import IN_HEAD, KEPT
from hk_backend.ops.rotation import ROTATION
from hk_backend.quantize import stream
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.head import HEAD_RECIPES
from hk_backend.quantize.job import Job
from hk_backend.quantize.method import Method
from hk_backend.quantize.settings import Settings
from hk_backend.quantize.source import open_source
from hk_backend.terms.folds import ALL, HEADS
from tests.quantize.checkpoint import (
    EMBEDDING,
    HEAD,
    WEIGHTS,
    Damage,
    change_weights,
    config,
    finished,
    refused,
    weights,
)

LAYER = "model.layers.1.self_attn.k_proj"
INDEX = "model.safetensors.index.json"


def layer(*shape: int) -> Damage:
    return weights({f"{LAYER}.weight": torch.zeros(*shape)})


def lacks(name: str, **more: Any) -> Damage:
    return weights({name: None}, **more)


def biases(kind: str, projections: str) -> Damage:
    """A model with biases of these projections of attention alone."""
    names = [f"{each}_proj.bias" for each in projections]
    every = [f"model.layers.{index}.self_attn.{name}" for index in range(3) for name in names]
    return weights({each: torch.zeros(1) for each in every}, model_type=kind, attention_bias=True)


def file(name: str, text: str | None) -> Damage:
    """Replaces a file of a model; None removes it."""

    def change(model: Path) -> None:
        (model / name).unlink(missing_ok=True)
        if text is not None:
            (model / name).write_text(text)

    return change


def renamed(name: str) -> Damage:
    def rename(model: Path) -> None:
        (model / WEIGHTS).rename(model / name)

    return rename


def gguf(model: Path) -> None:
    (model / "config.json").unlink()
    (model / "model.Q4_1.gguf").write_bytes(b"GGUF")


def truncated(model: Path) -> None:
    (model / WEIGHTS).write_bytes((model / WEIGHTS).read_bytes()[:-1])


NORM = "model.layers.1.input_layernorm.weight"
EXPERT = "model.layers.1.mlp.experts.0.w1.weight"
ELSEWHERE = json.dumps({"weight_map": {"model.norm.weight": "model-00007.safetensors"}})
TIED = {"tie_word_embeddings": True}


@pytest.mark.parametrize(
    ("damage", "format", "why"),
    [
        (file("config.json", None), "fp8", "is not a model: it has no config.json"),
        (gguf, "fp8", r"model\.Q4_1\.gguf is GGUF"),
        (file("config.json", "{"), "fp8", r"config\.json is not JSON"),
        (config(quantization_config={"quant_method": "awq"}), "fp8", r"quantised already \(awq\)"),
        (file("hf_quant_config.json", "{}"), "fp8", r"quantised already \(modelopt\)"),
        (file(WEIGHTS, None), "fp8", "has no weights"),
        (renamed("pytorch_model.bin"), "fp8", r"pytorch_model\.bin is not safetensors"),
        (file(INDEX, ELSEWHERE), "fp8", r"model-00007\.safetensors, which is not there"),
        (file(INDEX, "{}"), "fp8", "is not an index"),
        (renamed("a.safetensors"), "fp8", r"no model\.safetensors\.index\.json"),
        (truncated, "fp8", r"model\.safetensors cannot be read"),
        (weights({f"{LAYER}.weight": torch.zeros(1, 8).char()}), "fp8", f"{LAYER}.weight is I8"),
        (weights({EXPERT: torch.zeros(8, 8)}), "fp8", f"the matrix {EXPERT}"),
        (lacks(f"{LAYER}.weight"), "fp8", f"{LAYER}.weight is missing"),
        (lacks(EMBEDDING), "fp8", f"incomplete: {EMBEDDING} is missing"),
        (lacks(NORM), "fp8", f"incomplete: {NORM} is missing"),
        (lacks("model.norm.weight"), "fp8", r"incomplete: model\.norm\.weight is missing"),
        (lacks(HEAD), "fp8", r"incomplete: lm_head\.weight is missing"),
        (lacks(EMBEDDING, **TIED), "fp8", r"missing; if it is tied to lm_head\.weight, save that"),
        (biases("qwen2", "qv"), "fp8", r"incomplete: .*0\.self_attn\.k_proj\.bias is missing"),
        (biases("llama", "qkv"), "fp8", r"incomplete: .*0\.self_attn\.o_proj\.bias is missing"),
        (config(model_type="qwen3"), "fp8", r"incomplete: .*0\.self_attn\.q_norm\.weight is miss"),
        (layer(256), "fp8", rf"{LAYER}.weight has the shape \[256\]"),
        (config(num_hidden_layers=None), "fp8", "num_hidden_layers"),
        (layer(128, 40), "mxfp4", f"{LAYER} has 40 input channels; mxfp4 needs a multiple of 32"),
        (layer(96, 256), "fp8_block", f"{LAYER} has 96 output channels, not a multiple of 128"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_model(damage: Damage, format: str, why: str, writable: Path, tmp_path: Path) -> None:
    Job(writable, tmp_path / "out", Settings(format))  # the healthy one is not refused
    damage(writable)
    refused(why, writable, tmp_path / "out", Settings(format))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings("mxfp4"), Method("rotated", ROTATION)),
        (Settings("mxfp4", method="gptq"), Method("gptq", ROTATION)),
        (Settings("mxfp4", "none"), Method("scales")),
        (Settings("mxfp4", "none", method="rotated"), Method("rotated", ROTATION)),
        (Settings("mxfp4", "none", method="gptq"), Method("gptq")),
        (Settings("mxfp4", "mxfp6_e2m3"), Method("scales")),
        (Settings("mxfp4", "mxfp8", method="rotated"), Method("rotated", ROTATION)),
        (Settings("mxfp4", "mxfp6_e2m3", method="gptq"), Method("gptq", ROTATION)),
        (Settings("mxfp6_e3m2"), Method("scales")),
        (Settings("mxfp8", "none"), Method("scales")),
        (Settings("mxfp8", method="gptq"), Method("gptq")),
        (Settings("fp8"), Method("rtn")),
        (Settings("fp8_block", "none"), Method("rtn")),
        # a rotation of 0 is none, as in the engines' option of that name
        (Settings("mxfp4", method="gptq", rotation=0), Method("gptq", 0)),
        (Settings("mxfp4", method="rtn", rotation=0), Method("rtn", 0)),
        (Settings("fp8", rotation=0), Method("rtn", 0)),
    ],
    ids=repr,
)
def test_methods(settings: Settings, expected: Method) -> None:
    """The defaults of each format, and what is rotated without being asked for."""
    assert replace(settings, calibration=Path("text.txt")).chosen_method() == expected


def test_a_rotation_that_does_not_fit(writable: Path, tmp_path: Path) -> None:
    """The error names the layer and its channels; a smaller block or no rotation helps."""
    layer(128, 320)(writable)
    why = rf"--rotation 128: {LAYER} has 320 input .* use --rotation 32 or 64, or --method scales"
    refused(why, writable, tmp_path / "out", Settings("mxfp4", rotation=128))
    Job(writable, tmp_path / "out", Settings("mxfp4", rotation=64))
    Job(writable, tmp_path / "out", Settings("mxfp4", method="scales"))


def test_no_model_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    hub = r"download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B$"
    for model, why in (
        (tmp_path / "nowhere", r"nowhere: no such folder$"),
        (Path("meta-llama/Llama-3.2-1B"), hub),
        (tmp_path / "file", "a folder"),
    ):
        refused(why, model, tmp_path / "out", Settings("fp8"))


def test_a_weight_that_is_not_finite(writable: Path, tmp_path: Path) -> None:
    """The error comes while reading, with the tensor's name, and leaves no config.json."""
    weight = torch.zeros(128, 256)
    weight[3, 200] = -torch.inf
    change_weights(writable, {f"{LAYER}.weight": weight})
    with pytest.raises(QuantizeError, match=f"{LAYER}.weight contains NaN or infinity"):
        Job(writable, tmp_path / "out", Settings("mxfp4")).run()
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize("method", ["rotated", "gptq"])
def test_a_weight_that_exceeds_float32_when_rotated(
    method: str, writable: Path, tmp_path: Path, text: Path
) -> None:
    """A scale would be NaN, which no engine takes."""
    change_weights(writable, {f"{LAYER}.weight": torch.full((128, 256), 3e38)})
    settings = Settings("mxfp4", method=method, rotation=32, calibration=text, fold="none")
    with pytest.raises(QuantizeError, match=f"{LAYER}.weight: rotated by 32 channels it exceeds"):
        Job(writable, tmp_path / "out", settings).run()
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize("format", ["fp8", "mxfp4"])
def test_a_weight_of_zeros(format: str, writable: Path, tmp_path: Path) -> None:
    layer(128, 256)(writable)
    job = finished(writable, tmp_path / "out", Settings(format))
    assert {found.layer: found.error for found in job.layer_errors()}[LAYER] == 0


CHOICES = f"choose one of {', '.join((KEPT, *HEAD_RECIPES))}$"
NO_HEADS = ("int8", "bf16", "fp8_block")
ROTATE = "rotated and gptq rotate mxfp8, mxfp6_e2m3, mxfp6_e3m2 and mxfp4$"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (Settings("fp9"), "format 'fp9': choose one of fp8, "),
        (Settings("fp8", "mx"), "activations 'mx': fp8 knows token and none"),
        (Settings("mxfp8", "mxfp6_e2m3"), "'mxfp6_e2m3': mxfp8 knows mx and none"),
        (Settings("fp8", shard_bytes=0), "--shard-size 0: expected a positive"),
        (Settings("fp8", ignore=["model.layers.7.*"]), r"--ignore model\.layers\.7\.\*: no such"),
        (Settings("fp8", ignore=["lm_head"]), "never quantised"),
        (Settings("fp8", ignore=["*q_proj"]), "q_proj but not .*k_proj; engines run them as one"),
        (Settings("fp8", ignore=["*v_proj"]), "v_proj but not .*q_proj; engines run them as one"),
        (Settings("fp8", ignore=["*gate_proj"]), "gate_proj but not .*up_proj; engines run them"),
        (Settings("fp8", ignore=["*up_proj"]), "up_proj but not .*gate_proj; engines run them"),
        (Settings("fp8", ignore=["*"]), "leaves nothing"),
        (Settings("fp8", method="scales"), "--method scales: fp8 knows rtn and gptq$"),
        (Settings("fp8", method="rotated"), "--method rotated: fp8 knows rtn and gptq"),
        (Settings("mxfp4", method="awq"), "awq: mxfp4 knows rotated, scales, gptq and rtn"),
        (Settings("mxfp4", method="gptq"), "--method gptq needs --text FILE"),
        (Settings("mxfp4", method="scales", rotation=64), f"does not rotate mxfp4; {ROTATE}"),
        (Settings("mxfp8", rotation=64), "--rotation 64: --method scales does not rotate mxfp8"),
        (Settings("mxfp4", rotation=16), "--rotation 16: choose one of 32, 64 and 128"),
        (Settings("mxfp4", rotation=0), "rotated rotates; choose among scales, gptq and rtn$"),
        (Settings("mxfp4", fold="most"), "--fold most: choose one of none, heads and all"),
        (Settings("fp8", fold=HEADS), "--fold heads: nothing is rotated"),
        (Settings("mxfp4", method="scales", fold=ALL), "--fold all: nothing is rotated"),
        (Settings("mxfp4", rotation=128, fold=HEADS), "64 channels are not whole blocks of"),
        (Settings("mxfp4", fold=HEADS, ignore=["*.o_proj"]), "leaves out one of v_proj and"),
        (Settings("mxfp4", fold=HEADS, ignore=["*.self_attn.*"]), "leaves out every o_proj"),
        (Settings("mxfp6_e2m3", method="rotated", fold=ALL), "one rotation for all layers"),
        (Settings("fp8", embedding=IN_HEAD), "--embedding head needs --head FORMAT: what it sh"),
        (Settings("fp8", embedding="fp8", head="fp8"), "--embedding fp8: choose one of 16, head"),
        (Settings("fp8", embedding=IN_HEAD, head="fp8"), "--embedding head: the model's LM head h"),
        *((Settings("fp8", head=each), f"--head {each}: {CHOICES}") for each in NO_HEADS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings(settings: Settings, why: str, model: Path, tmp_path: Path) -> None:
    refused(why, model, tmp_path / "out", settings)


NARROW = {"hidden_size": 224, "head_dim": 64}
STREAM = Settings("mxfp4", fold=ALL, ignore=["*[qkv]_proj", "*gate_proj", "*up_proj"])


@pytest.mark.parametrize(
    ("settings", "change", "why"),
    [
        (Settings("mxfp4", fold=ALL), {"model_type": "olmo2"}, "model_type 'olmo2': expected one"),
        (Settings("mxfp4", fold=HEADS), {"model_type": "olmo"}, "model_type 'olmo': expected"),
        (
            STREAM,
            {"hidden_size": 224, "head_dim": 64},
            "stream's 224 channels are not whole blocks",
        ),
    ],
)
def test_models_that_cannot_be_folded(
    settings: Settings, change: dict[str, Any], why: str, writable: Path, tmp_path: Path
) -> None:
    config(**change)(writable)
    refused(why, writable, tmp_path / "out", settings)


def test_a_file_that_was_cut_off_since_it_was_opened(writable: Path) -> None:
    source = open_source(writable)
    name = next(iter(source.tensors))
    (writable / WEIGHTS).write_bytes((writable / WEIGHTS).read_bytes()[:-8])
    with pytest.raises(QuantizeError, match=f"cannot read {name}"):
        list(source.pieces(name))


@pytest.mark.parametrize("config", [None, "{", '{"model_type": "unheard of"}'])
def test_a_config_that_transformers_cannot_read(config: str | None, tmp_path: Path) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(QuantizeError, match="transformers cannot load it"):
        stream._skeleton(SimpleNamespace(directory=tmp_path))  # type: ignore[arg-type]
