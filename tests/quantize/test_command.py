"""`hk-backend quantize` on the command line: for people, for programs, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hk_backend.cli.app import app
from hk_backend.quantize.options import Format
from hk_backend.quantize.recipe import RECIPES
from tests.quantize.checkpoint import config_of, tensors_of

TEXT = "a text of one line"


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["quantize", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_every_recipe_is_offered() -> None:
    assert [format.value for format in Format] == list(RECIPES)


def test_for_people(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    code, out, _ = run(model, tmp_path / "out", "--format", "mxfp4", "--text", text)
    assert code == 0
    words = " ".join(out.split())
    assert "21 layers, median" in words
    assert "left as they are: lm_head and the embeddings" in words
    assert "perplexity" in words
    report = json.loads((tmp_path / "out" / "hk_quantize.json").read_text())
    assert f"{report['perplexity']['after']:.4f} after" in words
    assert f"{report['source_bytes'] / 1e6:,.1f} MB before" in words


def test_for_programs(model: Path, tmp_path: Path) -> None:
    options = ["--format", "fp8", "--activations", "none", "--ignore", "model.layers.0.*"]
    code, out, _ = run(model, tmp_path / "out", *options, "--shard-size", "0.001", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["finished"]
    assert report["settings"]["activations"] == "none"
    assert len(report["layers"]) == 14
    assert not any(layer["layer"].startswith("model.layers.0.") for layer in report["layers"])
    config = config_of(tmp_path / "out")["quantization_config"]
    assert config["config_groups"]["group_0"]["input_activations"] is None
    assert "model.layers.0.self_attn.q_proj" in config["ignore"]
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 2
    dtype = tensors_of(tmp_path / "out")["model.layers.0.self_attn.q_proj.weight"].dtype
    assert dtype.itemsize == 4


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["nowhere", "OUT", "--format", "fp8"], "has no config.json"),
        (["MODEL", "OUT", "--format", "fp8", "--text", "nowhere.txt"], "nowhere.txt"),
        (["MODEL", "OUT", "--format", "fp8", "--ignore", "lm_head"], "never quantised"),
    ],
)
def test_refusals(options: list[str], why: str, model: Path, tmp_path: Path) -> None:
    places = {"MODEL": str(model), "OUT": str(tmp_path / "out")}
    code, out, err = run(*(places.get(option, option) for option in options))
    assert (code, out) == (1, "")
    assert why in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def test_a_format_that_is_not_there(model: Path, tmp_path: Path) -> None:
    code, _, err = run(model, tmp_path / "out", "--format", "int4")
    assert code == 2
    assert "mxfp6_e2m3" in err
