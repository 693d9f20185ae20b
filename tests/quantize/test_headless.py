"""A model that scores texts has another module in the LM head's place: it stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hk_backend.quantize.recipe import RECIPES
from tests.quantize.checkpoint import config_of, tensors_of
from tests.quantize.conftest import WEIGHTS
from tests.quantize.test_command import run

TEXT = "what it is calibrated on " * 40


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def scorer(request: pytest.FixtureRequest, writable: Path) -> Path:
    """A reward model: one score of a text. Those of small models may come from a tied one."""
    tensors = load_file(writable / WEIGHTS)
    del tensors["lm_head.weight"]
    tensors["score.weight"] = torch.linspace(-1, 1, 256)[None]
    save_file(tensors, writable / WEIGHTS, {"format": "pt"})
    config = writable / "config.json"
    changed = {"architectures": ["LlamaForSequenceClassification"], "num_labels": 1}
    changed |= {"tie_word_embeddings": request.param}
    config.write_text(json.dumps(json.loads(config.read_text()) | changed))
    return writable


@pytest.mark.parametrize("format", RECIPES)
def test_readers_are_told_to_leave_its_score_alone(
    format: str, scorer: Path, tmp_path: Path
) -> None:
    assert run(scorer, tmp_path / "out", "--format", format)[0] == 0
    config = config_of(tmp_path / "out")["quantization_config"]
    assert "score" in config.get("ignore", config.get("exclude"))
    score = tensors_of(tmp_path / "out")["score.weight"]
    assert torch.equal(score, tensors_in(scorer)["score.weight"])


def test_transformers_scores_with_it(scorer: Path, tmp_path: Path) -> None:
    """Of every Linear that is not named it makes a layer with scales, which the file has not."""
    from transformers import AutoModelForSequenceClassification

    assert run(scorer, tmp_path / "out", "--format", "fp8", "--activations", "none")[0] == 0
    with torch.compiler.set_stance("force_eager"), torch.inference_mode():
        model = AutoModelForSequenceClassification.from_pretrained(
            tmp_path / "out", dtype=torch.float32
        )
        found = model.eval()(torch.arange(1, 33)[None], output_hidden_states=True)
    hidden = found.hidden_states[-1][:, -1]
    torch.testing.assert_close(found.logits, hidden @ tensors_in(scorer)["score.weight"].T)


def test_it_has_no_perplexity(scorer: Path, tmp_path: Path) -> None:
    """transformers would make up a head."""
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    code, out, err = run(scorer, tmp_path / "out", "--format", "fp8", "--text", text)
    assert (code, out) == (1, "")
    assert "has no LM head, so --text measures no perplexity; leave it out" in err
    assert not (tmp_path / "out").exists()


def test_it_is_calibrated_on_a_text(scorer: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    options = ["--format", "fp8", "--method", "gptq", "--text", text, "--json"]
    code, out, err = run(scorer, tmp_path / "out", *options)
    assert code == 0, err
    assert "it is only calibrated on" in err
    report = json.loads(out)
    assert "perplexity" not in report
    assert all(layer["objective"] for layer in report["layers"])


def test_no_head_can_be_quantised(scorer: Path, tmp_path: Path) -> None:
    code, _, err = run(scorer, tmp_path / "out", "--format", "fp8", "--head", "fp8")
    assert code == 1
    assert "--head fp8: " in err
    assert "has no LM head" in err


def test_its_stream_is_not_rotated(scorer: Path, tmp_path: Path) -> None:
    """The score reads it, too. Also beside a head, as in models with a value head."""
    options = ["--format", "mxfp4", "--fold", "all"]
    tensors = tensors_in(scorer)
    for head in (None, tensors["model.embed_tokens.weight"]):
        if head is not None:
            save_file(
                tensors | {"lm_head.weight": head.clone()}, scorer / WEIGHTS, {"format": "pt"}
            )
        code, _, err = run(scorer, tmp_path / "out", *options)
        assert code == 1
        assert "--fold all: score reads the residual stream, too" in " ".join(err.split())


def tensors_in(model: Path) -> dict[str, torch.Tensor]:
    return load_file(model / WEIGHTS)
