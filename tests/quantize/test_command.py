"""`hk-backend quantize` on the command line: for people, for programs, and its refusals."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import hk_backend.quantize
from hk_backend.cli.app import app
from hk_backend.config import get_config
from hk_backend.quantize import perplexity
from tests.quantize.checkpoint import (
    EMBEDDING,
    HEAD,
    WEIGHTS,
    change_weights,
    config_of,
    tensors_of,
)


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["quantize", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_for_people(model: Path, tmp_path: Path, text: Path) -> None:
    options = ["--format", "mxfp4", "--head", "mxfp8", "--text", text]
    code, out, _ = run(model, tmp_path / "out", *options)
    assert code == 0
    words = " ".join(out.split())
    report = json.loads((tmp_path / "out" / "hk_quantize.json").read_text())
    for said in (
        "21 layers, median",
        "not quantised: lm_head and the embeddings",
        f"{report['perplexity']['after']:.4f} after",
        "lm_head: to be served in mxfp8",
        "the LM head; a token takes",
        f"{report['source_bytes'] / 1e6:,.1f} MB before",
    ):
        assert said in words
    for name, cost in report["perplexity"]["heads"]["formats"].items():
        assert name in words
        assert f"{cost['perplexity']:.4f}" in words


def test_an_interrupted_measurement(
    model: Path, tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is whole: without the text the report has all but the perplexity."""
    out = tmp_path / "out[v2]"

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(perplexity, "serve_quantized", interrupted)
        code, _, err = run(model, out, "--format", "fp8", "--text", text)
    said = "Interrupted, 1 of 1 files and 21 of 21 layers kept; run the same command."
    assert (code, err.splitlines()) == (130, [said])
    code, printed, _ = run(model, out, "--format", "fp8")
    assert code == 0
    assert "perplexity" not in printed
    assert "out[v2]/hk_quantize.json" in "".join(printed.split())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["nowhere", "OUT"], "nowhere: no such folder"),
        (["MODEL", "OUT", "--text", "nowhere.txt"], "nowhere.txt: no such file"),
        (["MODEL", "OUT", "--text", "MODEL"], "it is a folder"),
        (["MODEL", "OUT", "--text", "WEIGHTS"], "it is not UTF-8 text ("),
        (["MODEL", "OUT", "--ignore", "lm_head"], "never quantised"),
        (["MODEL", "OUT", "--method", "gptq"], "--method gptq needs --text FILE"),
    ],
)
def test_refusals(options: list[str], why: str, model: Path, tmp_path: Path) -> None:
    places = {"MODEL": str(model), "OUT": str(tmp_path / "out"), "WEIGHTS": str(model / WEIGHTS)}
    code, out, err = run(*(places.get(option, option) for option in options), "--format", "fp8")
    assert (code, out) == (1, "")
    assert why in " ".join(err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("device", "served"), [("hip", True), ("nonsense", False)])
def test_the_processor_computes_it(
    device: str, served: bool, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HK_DEVICE is for serving, since no GPU has every quantiser. A bad value is no traceback."""
    with monkeypatch.context() as patch:
        patch.setenv("HK_DEVICE", device)
        get_config.cache_clear()
        code, _, err = run(model, tmp_path / "out", "--format", "mxfp4")
    get_config.cache_clear()
    assert code == (0 if served else 1)
    assert served or (len(err.splitlines()) == 1 and "HK_DEVICE='nonsense'" in err)


def test_without_the_extra_it_is_one_line(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("hk_backend.quantize.")]:
        if not name.endswith((".errors", ".options")):
            monkeypatch.delitem(sys.modules, name)
            monkeypatch.delattr(hk_backend.quantize, name.rpartition(".")[2], raising=False)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    code, out, err = run(model, tmp_path / "out", "--format", "fp8")
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert re.search("safetensors.* -m pip install 'safetensors.*'transformers", line)


# -- a model that scores texts has another module in the LM head's place: it stays as it is


@pytest.mark.parametrize("format", ["fp8", "mxfp6_e2m3"])
def test_readers_are_told_to_leave_a_score_alone(format: str, scorer: Path, tmp_path: Path) -> None:
    """transformers makes a layer with scales of every Linear that is not named, and the file has no
    scales for this one."""
    from transformers import AutoModelForSequenceClassification

    assert run(scorer, tmp_path / "out", "--format", format, "--activations", "none")[0] == 0
    config = config_of(tmp_path / "out")["quantization_config"]
    assert "score" in config.get("ignore", config.get("exclude"))
    score = tensors_of(tmp_path / "out")["score.weight"]
    assert torch.equal(score, load_file(scorer / WEIGHTS)["score.weight"])
    if format == "fp8":
        with torch.compiler.set_stance("force_eager"), torch.inference_mode():
            model = AutoModelForSequenceClassification.from_pretrained(
                tmp_path / "out", dtype=torch.float32
            )
            found = model.eval()(torch.arange(1, 33)[None], output_hidden_states=True)
        torch.testing.assert_close(found.logits, found.hidden_states[-1][:, -1] @ score.T)


def test_a_score_is_calibrated_on_a_text(scorer: Path, tmp_path: Path, text: Path) -> None:
    options = ["--format", "fp8", "--method", "gptq", "--text", text, "--json"]
    code, out, err = run(scorer, tmp_path / "out", *options)
    assert code == 0, err
    assert "it is only calibrated on" in err
    report = json.loads(out)
    assert "perplexity" not in report
    assert all(layer["objective"] for layer in report["layers"])


def test_what_a_score_has_not(scorer: Path, tmp_path: Path, text: Path) -> None:
    """A perplexity is refused, for which transformers would make up a head. So are a format for the
    head, and a rotation of the stream, also in a model with a value head beside the LM head."""
    fold = ["--format", "mxfp4", "--fold", "all"]
    reads = "--fold all: score reads the residual stream, too"
    cases: list[tuple[list[object], str]] = [
        (["--format", "fp8", "--text", text], "has no LM head, so --text measures no perplexity"),
        (["--format", "fp8", "--head", "fp8"], "--head fp8: .* has no LM head"),
        (fold, reads),
    ]
    for options, why in cases:
        code, out, err = run(scorer, tmp_path / "out", *options)
        assert (code, out) == (1, "")
        assert re.search(why, " ".join(err.split()))
        assert not (tmp_path / "out").exists()
    change_weights(scorer, {HEAD: load_file(scorer / WEIGHTS)[EMBEDDING].clone()})
    assert reads in " ".join(run(scorer, tmp_path / "out", *fold)[2].split())
