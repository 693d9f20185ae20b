"""`--head`: what is written, what is served, and what each format costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hk_backend.engine.linear.heads import head_in, pack_head
from hk_backend.ops import look_up
from hk_backend.ops.head_format import EMBEDDING_KEY, HEAD_KEY, HEADS, IN_HEAD, KEPT
from hk_backend.quantize import perplexity
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.head import HEAD_RECIPES, check_head
from hk_backend.quantize.head_costs import served_head
from hk_backend.quantize.job import Job
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.served import ServedLinear
from hk_backend.quantize.settings import Settings
from hk_backend.quantize.source import open_source
from hk_backend.quantize.text import read_text
from tests.quantize.checkpoint import (
    EMBEDDING,
    HEAD,
    WEIGHTS,
    change_config,
    change_weights,
    config_of,
    finished,
    tensors_of,
)


@pytest.mark.parametrize("name", ["fp8", "mxfp6_e2m3"])
def test_a_key_and_nothing_else_is_written(name: str, model: Path, tmp_path: Path) -> None:
    """The file holds the head's table as it was; the key is one that the engines' plugins read."""
    plain, headed = tmp_path / "plain", tmp_path / "headed"
    finished(model, plain, Settings(name, method="rtn"))
    finished(model, headed, Settings(name, method="rtn", head="mxfp4"))
    before, after = (config_of(each)["quantization_config"] for each in (plain, headed))
    assert after == before | {HEAD_KEY: "mxfp4"}
    assert (head_in(before).format, head_in(after).format) == (KEPT, "mxfp4")
    tensors = tensors_of(plain)
    assert all(torch.equal(each, tensors[name]) for name, each in tensors_of(headed).items())


@pytest.mark.parametrize("name", HEAD_RECIPES)
def test_as_an_engine_packs_it(name: str) -> None:
    assert RECIPES[name].format in HEADS, "engines refuse the key"
    table = torch.randn(70, 96, generator=torch.Generator().manual_seed(0)).bfloat16()
    layer = torch.nn.Module()
    pack_head(layer, table, RECIPES[name].format)
    ours = served_head(table, name).packed
    assert ours.as_ints() == layer.hk_weight
    assert torch.equal(ours.data, layer.hk_data)


def test_what_each_costs(model: Path, tmp_path: Path, text: Path) -> None:
    """The perplexity is that of a model whose head has the packed values."""
    head = "mxfp8"
    settings = Settings("mxfp6_e2m3", "none", method="rtn", head=head)
    job = finished(model, tmp_path / "out", settings)
    found = perplexity.measure(job, text)
    formats = found["heads"]["formats"]
    assert list(formats) == [KEPT, "fp8", "mxfp6_e2m3", head]
    assert found["after"] == formats[head]["perplexity"]
    assert len({cost["perplexity"] for cost in formats.values()}) == len(formats)
    assert formats["mxfp6_e2m3"]["bytes"] < formats["fp8"]["bytes"] < formats[KEPT]["bytes"]
    assert all(cost["microseconds"] > 0 for cost in formats.values())
    assert found["heads"]["layers_microseconds"] > 0
    plain = perplexity.load_model(model)
    perplexity.serve_quantized(plain, job)
    table, tokens = job.source.head_table, read_text(text, model).tokens
    original = load_file(model / WEIGHTS)[table]
    for name, cost in formats.items():
        recipe = RECIPES.get(name)
        values = recipe.dequantize(*recipe.quantize(original)) if recipe else original
        plain.lm_head.weight = torch.nn.Parameter(values, requires_grad=False)
        expected = perplexity.perplexity(plain, tokens, 1024)
        assert cost["perplexity"] == pytest.approx(expected, rel=1e-5), name


def test_an_embedding_in_the_head(writable: Path, tmp_path: Path, text: Path) -> None:
    """Its key, and its perplexity, that of a model with these rows in both places."""
    change_config(writable, tie_word_embeddings=True)
    change_weights(writable, {HEAD: None})
    settings = Settings("fp8", "none", head="mxfp4", embedding=IN_HEAD)
    job = finished(writable, tmp_path / "out", settings)
    config = config_of(tmp_path / "out")["quantization_config"]
    assert (config[HEAD_KEY], config[EMBEDDING_KEY]) == ("mxfp4", IN_HEAD)
    assert head_in(config).embedding == IN_HEAD
    found = perplexity.measure(job, text)
    plain = perplexity.load_model(writable)
    perplexity.serve_quantized(plain, job)
    packed = served_head(load_file(writable / WEIGHTS)[job.source.head_table], "mxfp4").packed
    rows = look_up(torch.arange(packed.n), packed, torch.float32)
    plain.model.embed_tokens.weight = torch.nn.Parameter(rows, requires_grad=False)
    plain.lm_head = ServedLinear(packed, None)
    expected = perplexity.perplexity(plain, read_text(text, writable).tokens, 1024)
    assert found["after"] == pytest.approx(expected, rel=1e-5)


CHOICES = f"choose one of {', '.join((KEPT, *HEAD_RECIPES))}$"
NO_HEADS = ("int8", "bf16", "fp8_block")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (Settings("fp8", embedding=IN_HEAD), "--embedding head needs --head FORMAT: what it sh"),
        (Settings("fp8", embedding="fp8", head="fp8"), "--embedding fp8: choose one of 16, head"),
        (Settings("fp8", embedding=IN_HEAD, head="fp8"), "--embedding head: the model's LM head h"),
        *((Settings("fp8", head=each), f"--head {each}: {CHOICES}") for each in NO_HEADS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_offered(settings: Settings, why: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(QuantizeError, match=why):
        Job(model, tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()


def test_a_table_that_cannot_be_a_head(writable: Path, tmp_path: Path) -> None:
    """Of numbers that are not finite, or of channels that are no whole blocks; kept, it may be."""
    source = open_source(writable)
    narrow = {HEAD: replace(source.tensors[HEAD], shape=(300, 88))}
    source = replace(source, tensors=source.tensors | narrow)
    check_head(source, "fp8")
    with pytest.raises(QuantizeError, match=f"--head mxfp8: {HEAD} has 88 input channels; mxfp8"):
        check_head(source, "mxfp8")
    table = load_file(writable / WEIGHTS)[HEAD]
    table[3, 5] = torch.inf
    change_weights(writable, {HEAD: table})
    Job(writable, tmp_path / "out", Settings("fp8"))
    with pytest.raises(QuantizeError, match=r"lm_head\.weight contains NaN or infinity"):
        Job(writable, tmp_path / "out", Settings("fp8", head="fp8"))


# -- a file that holds the head's table, under a config that ties it to the embedding


def tie(model: Path, head: torch.Tensor | None = None) -> Path:
    """`model` under such a config; `head`: its table, the embedding's if None."""
    change_config(model, tie_word_embeddings=True)
    table = load_file(model / WEIGHTS)[EMBEDDING].clone()
    change_weights(model, {HEAD: table if head is None else head})
    return model


@pytest.mark.parametrize("where", ["first", "last", "shape"])
def test_a_head_unlike_the_embedding(where: str, writable: Path, tmp_path: Path) -> None:
    """It is the model's head, in one value or in its shape; the new config says so."""
    table = load_file(writable / WEIGHTS)[EMBEDDING]
    if where == "shape":
        table = table[:-1].contiguous()
    else:
        table[0 if where == "first" else -1, -1] += 1
    source = open_source(tie(writable, table))
    assert (source.head_table, source.has_other_head) == (HEAD, True)
    why = r"a table of its own, though config\.json has tie_word"
    with pytest.raises(QuantizeError, match=why):
        Job(writable, tmp_path / "out", Settings("fp8", head="mxfp4", embedding=IN_HEAD))
    finished(writable, tmp_path / "out", Settings("fp8", head="mxfp4"))
    assert config_of(tmp_path / "out")["tie_word_embeddings"] is False
