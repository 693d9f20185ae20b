"""What cannot be quantised is told before anything is written, by the name of what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hk_backend.ops.rotation import ROTATION
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.job import Job
from hk_backend.quantize.method import Method
from hk_backend.quantize.settings import Settings
from hk_backend.quantize.source import EMBEDDING
from tests.quantize.conftest import WEIGHTS

LAYER = "model.layers.1.self_attn.k_proj"


def no_config(model: Path) -> None:
    (model / "config.json").unlink()


def gguf(model: Path) -> None:
    (model / "config.json").unlink()
    (model / "model.Q4_1.gguf").write_bytes(b"GGUF")


def config_is_no_json(model: Path) -> None:
    (model / "config.json").write_text("{")


def quantized_already(model: Path) -> None:
    change_config(model, quantization_config={"quant_method": "awq"})


def quantized_by_modelopt(model: Path) -> None:
    (model / "hf_quant_config.json").write_text("{}")


def no_weights(model: Path) -> None:
    (model / WEIGHTS).unlink()


def pickled(model: Path) -> None:
    (model / WEIGHTS).rename(model / "pytorch_model.bin")


def file_missing(model: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "model-00007.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))


def index_is_no_index(model: Path) -> None:
    (model / "model.safetensors.index.json").write_text("{}")


def no_index(model: Path) -> None:
    (model / WEIGHTS).rename(model / "a.safetensors")


def truncated(model: Path) -> None:
    weights = model / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1])


def integers(model: Path) -> None:
    change_weights(model, {f"{LAYER}.weight": torch.zeros(128, 256, dtype=torch.int8)})


def experts(model: Path) -> None:
    change_weights(model, {"model.layers.1.mlp.experts.0.w1.weight": torch.zeros(8, 8)})


def embedding_missing(model: Path) -> None:
    change_weights(model, {f"{EMBEDDING}.weight": None})


def norm_missing(model: Path) -> None:
    change_weights(model, {"model.layers.1.input_layernorm.weight": None})


def last_norm_missing(model: Path) -> None:
    change_weights(model, {"model.norm.weight": None})


def head_missing(model: Path) -> None:
    change_weights(model, {"lm_head.weight": None})


def bias_of_qwen2_missing(model: Path) -> None:
    give_biases(model, "qwen2", ["q_proj", "v_proj"])


def bias_of_llama_missing(model: Path) -> None:
    give_biases(model, "llama", ["q_proj", "k_proj", "v_proj"])


def head_norm_missing(model: Path) -> None:
    change_config(model, model_type="qwen3")


def table_has_the_heads_name(model: Path) -> None:
    change_config(model, tie_word_embeddings=True)
    embedding_missing(model)


def layer_missing(model: Path) -> None:
    change_weights(model, {f"{LAYER}.weight": None})


def layer_with_one_axis(model: Path) -> None:
    change_weights(model, {f"{LAYER}.weight": torch.zeros(256)})


def no_layers(model: Path) -> None:
    change_config(model, num_hidden_layers=None)


def odd_channels(model: Path) -> None:
    change_weights(model, {f"{LAYER}.weight": torch.zeros(128, 40)})


def merged_channels(model: Path) -> None:
    change_weights(model, {f"{LAYER}.weight": torch.zeros(96, 256)})


def give_biases(model: Path, kind: str, projections: list[str]) -> None:
    change_config(model, model_type=kind, attention_bias=True)
    for name in projections:
        for i in range(3):
            change_weights(model, {f"model.layers.{i}.self_attn.{name}.bias": torch.zeros(1)})


def test_a_model_that_has_no_head(writable: Path, tmp_path: Path) -> None:
    """A reward model's is another one."""
    head_missing(writable)
    change_config(writable, architectures=["LlamaForSequenceClassification"])
    Job(writable, tmp_path / "out", Settings("fp8")).run()


def test_files_in_a_folder_of_their_own(writable: Path, tmp_path: Path) -> None:
    (writable / "parts").mkdir()
    (writable / WEIGHTS).rename(writable / "parts" / "a.safetensors")
    index = {"weight_map": {f"{LAYER}.weight": "parts/a.safetensors"}}
    (writable / "model.safetensors.index.json").write_text(json.dumps(index))
    Job(writable, tmp_path / "out", Settings("fp8")).run()


def change_config(model: Path, **changed: Any) -> None:
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def change_weights(model: Path, changed: dict[str, torch.Tensor | None]) -> None:
    tensors = load_file(model / WEIGHTS) | changed
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, model / WEIGHTS, {"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "format", "why"),
    [
        (no_config, "fp8", "is not a model: it has no config.json"),
        (gguf, "fp8", r"model\.Q4_1\.gguf is GGUF"),
        (config_is_no_json, "fp8", r"config\.json is not JSON"),
        (quantized_already, "fp8", r"quantised already \(awq\)"),
        (quantized_by_modelopt, "fp8", r"quantised already \(modelopt\)"),
        (no_weights, "fp8", "has no weights"),
        (pickled, "fp8", r"pytorch_model\.bin is not safetensors"),
        (file_missing, "fp8", r"model-00007\.safetensors, which is not there"),
        (index_is_no_index, "fp8", "is not an index"),
        (no_index, "fp8", r"no model\.safetensors\.index\.json"),
        (truncated, "fp8", r"model\.safetensors cannot be read"),
        (integers, "fp8", f"{LAYER}.weight is I8"),
        (experts, "fp8", r"the matrix model\.layers\.1\.mlp\.experts\.0\.w1\.weight"),
        (layer_missing, "fp8", f"{LAYER}.weight is missing"),
        (embedding_missing, "fp8", r"incomplete: model\.embed_tokens\.weight is missing"),
        (norm_missing, "fp8", r"incomplete: model\.layers\.1\.input_layernorm\.weight is missing"),
        (last_norm_missing, "fp8", r"incomplete: model\.norm\.weight is missing"),
        (head_missing, "fp8", r"incomplete: lm_head\.weight is missing"),
        (table_has_the_heads_name, "fp8", r"missing; if it is tied to lm_head\.weight, save that"),
        (bias_of_qwen2_missing, "fp8", r"incomplete: .*0\.self_attn\.k_proj\.bias is missing"),
        (bias_of_llama_missing, "fp8", r"incomplete: .*0\.self_attn\.o_proj\.bias is missing"),
        (head_norm_missing, "fp8", r"incomplete: .*0\.self_attn\.q_norm\.weight is missing"),
        (layer_with_one_axis, "fp8", rf"{LAYER}.weight has the shape \[256\]"),
        (no_layers, "fp8", "num_hidden_layers"),
        (odd_channels, "mxfp4", f"{LAYER} has 40 input channels; mxfp4 needs a multiple of 32"),
        (merged_channels, "fp8_block", f"{LAYER} has 96 output channels, not a multiple of 128"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_model(
    damage: Callable[[Path], None], format: str, why: str, writable: Path, tmp_path: Path
) -> None:
    Job(writable, tmp_path / "out", Settings(format))  # the healthy one is not refused
    damage(writable)
    with pytest.raises(QuantizeError, match=why):
        Job(writable, tmp_path / "out", Settings(format))
    assert not (tmp_path / "out").exists()


def test_shapes_that_another_format_takes(writable: Path, tmp_path: Path) -> None:
    """The format is what does not fit: fp8 takes both, and ignoring the layer helps."""
    odd_channels(writable)
    Job(writable, tmp_path / "out", Settings("fp8"))
    Job(writable, tmp_path / "out", Settings("mxfp4", ignore=["model.layers.1.self_attn.*"]))
    merged_channels(writable)
    Job(writable, tmp_path / "out", Settings("fp8"))


@pytest.mark.parametrize(
    ("format", "method", "activations", "expected"),
    [
        ("mxfp4", "", "", Method("rotated", ROTATION)),
        ("mxfp4", "gptq", "", Method("gptq", ROTATION)),
        ("mxfp4", "", "none", Method("scales")),
        ("mxfp4", "rotated", "none", Method("rotated", ROTATION)),
        ("mxfp4", "gptq", "none", Method("gptq")),
        ("mxfp6_e3m2", "", "", Method("scales")),
        ("mxfp8", "", "none", Method("scales")),
        ("mxfp8", "gptq", "", Method("gptq")),
        ("fp8", "", "", Method("rtn")),
        ("fp8_block", "", "none", Method("rtn")),
    ],
)
def test_methods(format: str, method: str, activations: str, expected: Method) -> None:
    """The defaults of each format, and what is rotated without being asked for."""
    asked = Settings(format, activations, method=method, calibration=Path("text.txt"))
    assert asked.chosen_method() == expected


def test_a_rotation_of_0_is_none() -> None:
    """As in the engines' option of that name."""
    asked = Settings("mxfp4", method="gptq", rotation=0, calibration=Path("text.txt"))
    assert asked.chosen_method() == Method("gptq", 0)
    assert Settings("mxfp4", method="rtn", rotation=0).chosen_method() == Method("rtn", 0)
    assert Settings("fp8", rotation=0).chosen_method() == Method("rtn", 0)


def test_a_rotation_that_does_not_fit(writable: Path, tmp_path: Path) -> None:
    """Each layer's channels, by its name; a smaller block or no rotation helps."""
    change_weights(writable, {f"{LAYER}.weight": torch.zeros(128, 320)})
    why = rf"--rotation 128: {LAYER} has 320 input .* use --rotation 32 or 64, or --method scales"
    with pytest.raises(QuantizeError, match=why):
        Job(writable, tmp_path / "out", Settings("mxfp4", rotation=128))
    Job(writable, tmp_path / "out", Settings("mxfp4", rotation=64))
    Job(writable, tmp_path / "out", Settings("mxfp4", method="scales"))


def test_no_model_at_all(tmp_path: Path) -> None:
    with pytest.raises(QuantizeError, match=r"nowhere: no such folder$"):
        Job(tmp_path / "nowhere", tmp_path / "out", Settings("fp8"))
    hub = r"download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B$"
    with pytest.raises(QuantizeError, match=hub):
        Job(Path("meta-llama/Llama-3.2-1B"), tmp_path / "out", Settings("fp8"))
    (tmp_path / "file").write_text("")
    with pytest.raises(QuantizeError, match="a folder"):
        Job(tmp_path / "file", tmp_path / "out", Settings("fp8"))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_weight_that_is_not_finite(value: float, writable: Path, tmp_path: Path) -> None:
    """Found while reading: an error with the tensor's name, and no config.json."""
    weight = torch.zeros(128, 256)
    weight[3, 200] = value
    change_weights(writable, {f"{LAYER}.weight": weight})
    with pytest.raises(QuantizeError, match=f"{LAYER}.weight contains NaN or infinity"):
        Job(writable, tmp_path / "out", Settings("mxfp4")).run()
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize("method", ["rotated", "gptq"])
def test_a_weight_that_exceeds_float32_when_rotated(
    method: str, writable: Path, tmp_path: Path
) -> None:
    """A scale would be NaN, which no engine takes."""
    change_weights(writable, {f"{LAYER}.weight": torch.full((128, 256), 3e38)})
    text = tmp_path / "text.txt"
    text.write_text("a text of one line " * 20)
    settings = Settings("mxfp4", method=method, rotation=32, calibration=text, fold="none")
    with pytest.raises(QuantizeError, match=f"{LAYER}.weight: rotated by 32 channels it exceeds"):
        Job(writable, tmp_path / "out", settings).run()
    assert not (tmp_path / "out" / "config.json").exists()


def test_a_weight_of_zeros(writable: Path, tmp_path: Path) -> None:
    for format in ("fp8", "fp8_block", "mxfp4"):
        change_weights(writable, {f"{LAYER}.weight": torch.zeros(128, 256)})
        job = Job(writable, tmp_path / format, Settings(format))
        job.run()
        assert {found.layer: found.error for found in job.layer_errors()}[LAYER] == 0


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (Settings("fp9"), "format 'fp9': choose one of fp8, "),
        (Settings("fp8", "mx"), "activations 'mx': fp8 knows token and none"),
        (Settings("fp8", shard_bytes=0), "--shard-size 0: expected a positive"),
        (Settings("fp8", ignore=["model.layers.7.*"]), r"--ignore model\.layers\.7\.\*: no such"),
        (Settings("fp8", ignore=["lm_head"]), "never quantised"),
        (Settings("fp8", ignore=["*q_proj"]), "q_proj but not .*k_proj; engines run them as one"),
        (Settings("fp8", ignore=["*"]), "leaves nothing"),
        (Settings("fp8", method="scales"), "--method scales: fp8 knows rtn and gptq$"),
        (Settings("fp8", method="rotated"), "--method rotated: fp8 knows rtn and gptq"),
        (
            Settings("mxfp4", method="awq"),
            "--method awq: mxfp4 knows rotated, scales, gptq and rtn",
        ),
        (Settings("mxfp4", method="gptq"), "--method gptq needs --text FILE"),
        (
            Settings("mxfp4", method="scales", rotation=64),
            "--rotation 64: --method scales does not rotate mxfp4; rotated and gptq rotate mxfp8, "
            "mxfp6_e2m3, mxfp6_e3m2 and mxfp4$",
        ),
        (Settings("mxfp8", rotation=64), "--rotation 64: --method scales does not rotate mxfp8"),
        (Settings("mxfp4", rotation=16), "--rotation 16: choose one of 32, 64 and 128"),
        (
            Settings("mxfp4", rotation=0),
            "--rotation 0: --method rotated rotates; choose among scales, gptq and rtn$",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings(settings: Settings, why: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(QuantizeError, match=why):
        Job(model, tmp_path / "out", settings)
