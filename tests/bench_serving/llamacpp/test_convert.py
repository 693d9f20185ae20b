"""Conversion of a checkpoint to GGUF: transformers and the gguf package read the file back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, quants
from safetensors.torch import load_file

from bench_serving.llamacpp.blocks import encode
from bench_serving.llamacpp.convert import ROPE_FACTORS, write_gguf
from bench_serving.llamacpp.errors import ConvertError
from bench_serving.llamacpp.formats import FORMATS
from bench_serving.llamacpp.tokenizer import BYTE_LEVEL, LLAMA_3
from tests.models import VOCABULARY, tiny_llama
from tests.quantize.checkpoint import EMBEDDING, HEAD, WEIGHTS, Damage, config, weights

LAYER = "model.layers.1.self_attn.k_proj"
SCALED = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 512,
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"), 64)


@pytest.fixture
def model(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the model that the test may change."""
    return Path(shutil.copytree(tiny, tmp_path / "model"))


def tokenizer(**changed: Any) -> Damage:
    def change(model: Path) -> None:
        found = json.loads((model / "tokenizer.json").read_text())
        (model / "tokenizer.json").write_text(json.dumps(found | changed))

    return change


def bpe(**changed: Any) -> Damage:
    """The byte-pair encoder in the tokenizer's `model`."""

    def change(model: Path) -> None:
        found = json.loads((model / "tokenizer.json").read_text())["model"]
        tokenizer(model=found | changed)(model)

    return change


@pytest.mark.parametrize("format", list(FORMATS))
def test_transformers_reads_the_checkpoint_s_weights(
    tiny: Path, tmp_path: Path, format: str
) -> None:
    """transformers' GGUF reader has code of its own for names, pairs of channels and blocks."""
    from transformers import AutoModelForCausalLM

    write_gguf(tiny, tmp_path / "a.gguf", format)
    found = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="a.gguf", dtype=torch.float32
    ).state_dict()
    expected = load_file(tiny / WEIGHTS)
    assert set(expected) == set(found)
    for name, weight in expected.items():
        if weight.ndim == 1:
            assert torch.equal(found[name], weight), name
        elif format == "bf16":
            assert torch.equal(found[name], weight.bfloat16().float()), name
        else:
            # half a step, but Q4_0 has no +8; and the step is rounded to float16
            steps = {"q8_0": 1 / 254, "q4_0": 1 / 8}[format]
            bound = (steps + 2**-11) * largest(weight, 32)
            if format == "q4_0" and name == HEAD:
                bound = q6_k_bound(weight)
            assert ((found[name] - weight).abs() <= (1 + 2**-20) * bound).all(), name


def test_each_matrix_has_llama_quantize_s_type(model: Path, tmp_path: Path) -> None:
    """A head whose values differ from the embedding's is kept, whatever the config says."""
    file = tmp_path / "a.gguf"

    def types() -> dict[str, str]:
        write_gguf(model, file, "q4_0")
        return {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(file).tensors}

    config(tie_word_embeddings=True)(model)
    found = types()
    assert {found.pop(name) for name in list(found) if "norm" in name} == {"F32"}
    assert found.pop("output.weight") == "Q6_K"
    assert set(found.values()) == {"Q4_0"}
    weights({HEAD: load_file(model / WEIGHTS)[EMBEDDING].clone()})(model)
    tied = types()
    assert "output.weight" not in tied
    assert tied["token_embd.weight"] == "Q6_K"
    assert FORMATS["q4_0"].head_of(576) == "Q8_0"  # SmolLM2's width: no whole number of Q6_K blocks


@pytest.mark.parametrize("old", [False, True])
def test_scaled_frequencies_are_transformers_own(model: Path, tmp_path: Path, old: bool) -> None:
    """`old`: the config is written as transformers 4 writes it."""
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config(rope_parameters=SCALED)(model)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](AutoConfig.from_pretrained(model), "cpu")
    if old:
        scaling = {name: value for name, value in SCALED.items() if name != "rope_theta"}
        config(rope_parameters=None, rope_theta=10000.0, rope_scaling=scaling)(model)
    write_gguf(model, tmp_path / "a.gguf", "bf16")
    reader = GGUFReader(tmp_path / "a.gguf")
    (factors,) = (tensor.data for tensor in reader.tensors if tensor.name == ROPE_FACTORS)
    plain = 10000.0 ** -(torch.arange(0, 64, 2) / 64)
    torch.testing.assert_close(plain / torch.tensor(factors), scaled)


DIGITS = {"type": "Digits", "individual_digits": True}
SPLIT = {"type": "Split", "pattern": {"Regex": LLAMA_3}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("steps", "whole_words", "name"),
    [
        ([BYTE_LEVEL], False, "gpt-2"),
        ([DIGITS, BYTE_LEVEL], False, "smollm"),
        ([SPLIT, {**BYTE_LEVEL, "use_regex": False}], True, "llama-bpe"),
    ],
)
def test_its_splitting_is_found_by_its_steps(
    model: Path, steps: list[dict[str, Any]], whole_words: bool, name: str
) -> None:
    bpe(ignore_merges=whole_words)(model)
    tokenizer(pre_tokenizer={"type": "Sequence", "pretokenizers": steps})(model)
    write_gguf(model, model / "a.gguf", "bf16")
    assert GGUFReader(model / "a.gguf").fields["tokenizer.ggml.pre"].contents() == name


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda model: (model / "config.json").unlink(), "it has no config.json"),
        (config(model_type="qwen2"), "model_type is 'qwen2'; only 'llama'"),
        (config(hidden_act="gelu"), "hidden_act is 'gelu'; expected 'silu'"),
        (config(attention_bias=True), "attention_bias is True"),
        (config(mlp_bias=True), "mlp_bias is True"),
        (config(rope_parameters={"rope_type": "yarn"}), "rope_type is 'yarn'"),
        (config(intermediate_size=None), "intermediate_size is None; expected a number"),
        (config(rope_parameters={**SCALED, "factor": "8"}), "factor is '8'; expected a number"),
        (config(vocab_size=7), f"{EMBEDDING} has {VOCABULARY} rows, vocab_size is 7"),
        (config(quantization_config={"quant_method": "awq"}), r"quantised already \(awq\)"),
        (weights({HEAD: None}), f"{HEAD} is missing"),
        (weights({"model.norm.weight": None}), r"model\.norm\.weight is missing"),
        (weights({"model.extra.weight": torch.ones(2)}), r"llama\.cpp's Llama has no model\.extra"),
        (weights({f"{LAYER}.weight": torch.ones(128, 40)}), "40 columns; Q4_0 needs a multiple of"),
        (weights({f"{LAYER}.weight": torch.full((128, 256), torch.inf)}), "NaN or infinity"),
        (lambda model: (model / "tokenizer.json").unlink(), r"has no tokenizer\.json"),
        (lambda model: (model / "tokenizer.json").write_text("[]"), "is not a tokenizer"),
        (bpe(type="Unigram"), r"model\.type is 'Unigram', expected 'BPE'"),
        (bpe(byte_fallback=True), r"model\.byte_fallback is True, expected False"),
        (bpe(ignore_merges=True), r"model\.ignore_merges is True, expected False"),
        (tokenizer(normalizer={"type": "NFC"}), "normalizer is .*NFC"),
        (tokenizer(pre_tokenizer={"type": "Metaspace"}), "pre_tokenizer is .*Metaspace"),
        (
            tokenizer(added_tokens=[{"content": "<far>", "id": VOCABULARY, "special": True}]),
            f"'<far>' is number {VOCABULARY}; the embedding has {VOCABULARY} rows",
        ),
    ],
)
def test_what_llama_cpp_would_not_compute_is_refused_by_its_value(
    model: Path, tmp_path: Path, damage: Damage, why: str
) -> None:
    damage(model)
    with pytest.raises(ConvertError, match=why):
        write_gguf(model, tmp_path / "out" / "a.gguf", "q4_0")
    assert not list(tmp_path.glob("out/*"))


def largest(matrix: torch.Tensor, group: int) -> torch.Tensor:
    """The largest magnitude in each value's group, repeated at each value."""
    top = matrix.abs().unflatten(1, (-1, group)).amax(-1)
    return top.repeat_interleave(group, dim=1)


def q6_k_bound(matrix: torch.Tensor) -> torch.Tensor:
    """The largest error that Q6_K may make at each value.

    A step is a 32nd of the group's largest weight. The scale is itself rounded, to a 128th of the
    block's largest scale, and so moves a step by half of that. Over 32 steps this is a 256th of the
    block's largest weight. Half a percent more covers the block's step in float16, and float32.
    """
    return 1.005 * (largest(matrix, 16) / 32 + largest(matrix, 256) / 256)


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_q6_k_is_as_near_as_its_scales_allow(spread: float) -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(64, 512, generator=generator)
    groups = torch.randn(64, 32, generator=generator).mul(spread).exp()
    matrix *= groups.repeat_interleave(16, dim=1)
    kind = GGMLQuantizationType["Q6_K"]
    found = torch.from_numpy(quants.dequantize(encode(matrix, kind), kind))
    assert ((found - matrix).abs() <= q6_k_bound(matrix)).all()
