"""`hk-backend quantize` on the command line: for people, for programs, and its refusals."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import hk_backend.quantize
from hk_backend.cli.app import app
from hk_backend.config import get_config
from hk_backend.ops.head_format import KEPT
from hk_backend.quantize import perplexity
from hk_backend.quantize.head import HEAD_RECIPES
from hk_backend.quantize.options import Format, Head
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.source import Source
from tests.quantize.checkpoint import config_of, tensors_of
from tests.quantize.conftest import WEIGHTS

TEXT = "a text of one line"


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["quantize", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_every_recipe_is_offered() -> None:
    assert [format.value for format in Format] == list(RECIPES)
    assert [head.value for head in Head] == [KEPT, *HEAD_RECIPES]


def test_for_people(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    options = ["--format", "mxfp4", "--head", "mxfp8", "--text", text]
    code, out, _ = run(model, tmp_path / "out", *options)
    assert code == 0
    words = " ".join(out.split())
    assert "21 layers, median" in words
    assert "not quantised: lm_head and the embeddings" in words
    assert "perplexity" in words
    report = json.loads((tmp_path / "out" / "hk_quantize.json").read_text())
    assert f"{report['perplexity']['after']:.4f} after" in words
    assert "lm_head: to be served in mxfp8" in words
    assert "the LM head; a token takes" in words
    for name, cost in report["perplexity"]["heads"]["formats"].items():
        assert name in words
        assert f"{cost['perplexity']:.4f}" in words
    assert f"{report['source_bytes'] / 1e6:,.1f} MB before" in words


@pytest.mark.parametrize(
    ("options", "rule", "said"),
    [
        (("mxfp4", "rtn"), "even", "scales: even (a block's largest value, rounded"),
        (("mxfp4", "scales"), "least error", "scales: least error (the one of three exponents"),
        (("mxfp6_e2m3", "rotated"), "least error", "scales: least error"),
        (("fp8", "rtn"), "maximum", "scales: maximum (the largest value of a channel or block"),
    ],
)
def test_the_rule_of_the_scales(
    options: tuple[str, str], rule: str, said: str, model: Path, tmp_path: Path
) -> None:
    """Tools choose other exponents for one block: the command says whose rule is its own."""
    format, method = options
    command = (model, tmp_path / "out", "--format", format, "--method", method)
    code, out, _ = run(*command)
    assert code == 0
    assert said in " ".join(out.split())
    assert json.loads(run(*command, "--json")[1])["scale_rule"] == rule


def test_an_interrupted_measurement(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is whole: without the text the report has all but the perplexity."""
    text, out = tmp_path / "text.txt", tmp_path / "out[v2]"
    text.write_text(TEXT)

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(perplexity, "serve_quantized", interrupted)
        assert run(model, out, "--format", "fp8", "--text", text)[0] == 130
    code, printed, _ = run(model, out, "--format", "fp8")
    assert code == 0
    assert "perplexity" not in printed
    assert "out[v2]/hk_quantize.json" in "".join(printed.split())


def test_a_calibrated_model(model: Path, tmp_path: Path) -> None:
    """Objectives beside errors, and what of the text was measured, for people and for programs."""
    text = tmp_path / "text.txt"
    text.write_text(TEXT * 20)
    options = ["--format", "mxfp4", "--method", "gptq", "--rotation", "32", "--text", text]
    code, out, _ = run(model, tmp_path / "out", *options)
    assert code == 0
    words = " ".join(out.split())
    assert "method: gptq, rotated by 32 channels" in words
    report = json.loads(run(model, tmp_path / "out", *options, "--json")[1])
    calibrated = report["perplexity"]["calibrated_tokens"]
    assert f", after the {calibrated:,} that it was calibrated on" in words
    for layer in report["layers"]:
        before, after = layer["objective"]
        assert after < before
    assert "calibrated" not in report


def test_without_a_text_nothing_is_calibrated(model: Path, tmp_path: Path) -> None:
    code, out, err = run(model, tmp_path / "out", "--format", "mxfp4", "--method", "gptq")
    assert (code, out) == (1, "")
    assert "--method gptq needs --text FILE" in " ".join(err.split())
    assert not (tmp_path / "out").exists()


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
        (["nowhere", "OUT", "--format", "fp8"], "nowhere: no such folder"),
        (["MODEL", "OUT", "--format", "fp8", "--text", "nowhere.txt"], "nowhere.txt"),
        (["MODEL", "OUT", "--format", "fp8", "--text", "nowhere.txt"], "no such file"),
        (["MODEL", "OUT", "--format", "fp8", "--text", "MODEL"], "it is a folder"),
        (["MODEL", "OUT", "--format", "fp8", "--text", "WEIGHTS"], "it is not UTF-8 text ("),
        (["MODEL", "OUT", "--format", "fp8", "--ignore", "lm_head"], "never quantised"),
    ],
)
def test_refusals(options: list[str], why: str, model: Path, tmp_path: Path) -> None:
    places = {"MODEL": str(model), "OUT": str(tmp_path / "out"), "WEIGHTS": str(model / WEIGHTS)}
    code, out, err = run(*(places.get(option, option) for option in options))
    assert (code, out) == (1, "")
    assert why in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def test_a_format_that_is_not_there(model: Path, tmp_path: Path) -> None:
    code, _, err = run(model, tmp_path / "out", "--format", "int4")
    assert code == 2
    assert "mxfp6_e2m3" in err


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
    assert "safetensors" in line
    assert "-m pip install 'safetensors" in line
    assert "'transformers" in line


def test_ctrl_c_says_what_is_kept(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, count = Source.read, 0

    def interrupted(self: Source, name: str) -> torch.Tensor:
        nonlocal count
        count += 1
        if count == 20:
            raise KeyboardInterrupt
        return read(self, name)

    monkeypatch.setattr(Source, "read", interrupted)
    code, out, err = run(model, tmp_path / "out", "--format", "fp8", "--shard-size", "0.001")
    assert (code, out) == (130, "")
    assert re.fullmatch(
        r"Interrupted, \d of \d files and \d+ of 21 layers kept; run the same command\.",
        err.rstrip("\n"),
    )
    files, of, layers = map(int, re.findall(r"\d+", err)[:3])
    assert 0 < files < of
    assert 0 < layers < 21
    monkeypatch.setattr(Source, "read", read)
    assert run(model, tmp_path / "out", "--format", "fp8", "--shard-size", "0.001")[0] == 0


def test_a_late_refusal_stands_alone(model: Path, tmp_path: Path) -> None:
    """Without a progress bar above it."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("somebody's")
    code, out, err = run(model, tmp_path / "out", "--format", "fp8")
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "did not write it" in err


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (["--format", "mxfp4"], True),
        (["--format", "mxfp4", "--activations", "none"], False),
        (["--format", "mxfp8"], False),
    ],
)
def test_what_costs_much_is_told(
    options: list[str], warned: bool, model: Path, tmp_path: Path
) -> None:
    code, _, err = run(model, tmp_path / "out", *options)
    assert code == 0
    assert ("perplexity" in err) is warned
    assert ("--activations none" in err) is warned


@pytest.mark.parametrize("device", ["hip", "emulated:gfx950"])
def test_the_processor_computes_it(
    device: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HK_DEVICE is for serving: no GPU has every quantiser."""
    assert run(model, tmp_path / "plain", "--format", "mxfp8")[0] == 0
    with in_environment(monkeypatch, HK_DEVICE=device):
        assert run(model, tmp_path / "out", "--format", "mxfp8")[0] == 0
    plain, found = tensors_of(tmp_path / "plain"), tensors_of(tmp_path / "out")
    assert all(equal_bytes(each, plain[name]) for name, each in found.items())


def test_a_device_that_is_none(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_environment(monkeypatch, HK_DEVICE="nonsense"):
        code, out, err = run(model, tmp_path / "out", "--format", "fp8")
    assert (code, out) == (1, "")
    assert "HK_DEVICE='nonsense'" in err
    assert len(err.splitlines()) == 1


@contextmanager
def in_environment(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Iterator[None]:
    """HK reads its environment once in a process."""
    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        get_config.cache_clear()
        try:
            yield
        finally:
            get_config.cache_clear()


def equal_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))
