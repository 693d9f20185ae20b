"""Perplexity is exp of the mean loss over every token but the first, before and after; `--head`:
what is written, what is served, and what each format costs."""

from __future__ import annotations

import itertools
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hk_backend.engine.linear.heads import head_in
from hk_backend.ops import look_up
from hk_backend.ops.head_format import EMBEDDING_KEY, HEAD_KEY, IN_HEAD, KEPT
from hk_backend.quantize import perplexity
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.head import check_head
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
    refused,
)


@pytest.fixture(scope="module")
def loaded(model: Path) -> Any:
    return perplexity.load_model(model)


@pytest.mark.parametrize("length", [2, 3, 8, 9, 64])
@pytest.mark.parametrize("count", [2, 3, 8, 9, 10, 63, 64, 65, 200])
def test_windows(count: int, length: int) -> None:
    """Every token but the first is scored once, within the length, after half a window."""
    scored: list[int] = []
    for begin, first, end in perplexity.windows(count, length):
        assert 0 <= begin < first < end <= count
        assert end - begin <= length
        assert begin == 0 or first - begin == length // 2
        scored += range(first, end)
    assert scored == list(range(1, count))


def test_logits_that_are_capped(tmp_path: Path) -> None:
    """Logits may be capped after the head, in units of its outputs, as Gemma 2's are."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 64, "head_dim": 32}
    counts = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    capped = Gemma2Config(**sizes, **counts, final_logit_softcapping=2.0, initializer_range=1.0)
    model = Gemma2ForCausalLM(capped).eval()
    tokens = torch.randint(2, 300, (50,), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        loss = model(tokens[None], labels=tokens[None]).loss
    found = perplexity.perplexity(model, tokens.tolist(), 64)
    assert found == pytest.approx(math.exp(loss), rel=1e-5)
    assert model.config.final_logit_softcapping == 2.0


def test_windows_slide(loaded: Any) -> None:
    """Each token is scored after the context that its window gives it."""
    tokens = torch.randint(2, 10_000, (45,), generator=torch.Generator().manual_seed(2)).tolist()
    length, losses = 16, []
    for index in range(1, len(tokens)):
        window = max(0, math.ceil((index - 15) / 8))  # the first window that holds the token
        with torch.inference_mode():
            logits = loaded(torch.tensor([tokens[8 * window : index]])).logits[0, -1]
        losses.append(-float(torch.log_softmax(logits, -1)[tokens[index]]))
    expected = math.exp(sum(losses) / len(losses))
    done: list[tuple[int, int]] = []
    found = perplexity.perplexity(loaded, tokens, length, lambda *args: done.append(args))
    assert found == pytest.approx(expected, rel=1e-4)
    assert done[-1] == (44, 44)
    assert len(done) == 5


def test_before_and_after(model: Path, tmp_path: Path, text: Path) -> None:
    """transformers says the same of the model, and of it with the written values."""
    job = finished(model, tmp_path / "out", Settings("mxfp4", "none", method="rtn"))
    found = perplexity.measure(job, text)
    plain = perplexity.load_model(model)
    tokens = read_text(text, model).tokens
    assert found["before"] == perplexity.perplexity(plain, tokens, 1024)
    original = load_file(model / WEIGHTS)
    for layer in job.source.layers:
        values = job.recipe.dequantize(*job.recipe.quantize(original[f"{layer}.weight"]))
        plain.get_parameter(f"{layer}.weight").data = values
    expected = perplexity.perplexity(plain, tokens, 1024)
    assert found["after"] == pytest.approx(expected, rel=1e-5)
    assert found["after"] != found["before"]
    assert found["tokens"] == len(tokens) - 1
    report = json.loads((tmp_path / "out" / "hk_quantize.json").read_text())
    assert report["perplexity"] == found


def test_measured_once(
    model: Path, tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same text again costs nothing; half a measurement goes on; another text is measured."""
    job = finished(model, tmp_path / "out", Settings("fp8"))
    first = perplexity.measure(job, text)
    loads, load = 0, perplexity.load_model

    def counted(directory: Path, **options: bool) -> torch.nn.Module:
        nonlocal loads
        loads += 1
        return load(directory, **options)

    monkeypatch.setattr(perplexity, "load_model", counted)
    again = finished(model, tmp_path / "out", Settings("fp8"))
    assert perplexity.measure(again, text) == first
    assert loads == 0
    del again.out.report["perplexity"]["after"]
    again.out.save_report()
    seen: list[str] = []
    found = perplexity.measure(again, text, lambda what, *rest: seen.append(what))
    assert found | {"heads": {}} == first | {"heads": {}}, "more than times differs"
    assert seen == ["after"]
    text.write_text(text.read_text()[::-1])
    assert perplexity.measure(again, text)["sha256"] != first["sha256"]
    assert loads == 2


def test_what_has_no_perplexity(
    writable: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: Any = perplexity.load_model(writable)
    broken.model.norm.weight.data[0] = torch.nan
    with pytest.raises(QuantizeError, match="not finite: a tensor contains NaN or infinity"):
        perplexity.perplexity(broken, [3, 4, 5], 64)
    # a tokenizer of another model, or none
    most = max(read_text(text, writable).tokens)
    read_text(text, writable, most + 1)
    with pytest.raises(QuantizeError, match=f"has a token {most}, the model has {most}$"):
        read_text(text, writable, most)
    for content in ("{}", "", "{"):
        (writable / "tokenizer.json").write_text(content)
        with pytest.raises(QuantizeError, match="its tokenizer does not load: "):
            read_text(text, writable)
    monkeypatch.setitem(sys.modules, "transformers", None)
    why = r"^--text: .* -m pip install 'safetensors.*' 'transformers"
    with pytest.raises(QuantizeError, match=why):
        read_text(text, writable)


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


def test_activations_count(model: Path, tmp_path: Path, text: Path) -> None:
    """Rounded activations are in the measurement: they change it."""
    results = []
    for activations in ("", "none", "mxfp6_e3m2"):
        job = finished(model, tmp_path / f"out{activations}", Settings("mxfp4", activations))
        results.append(perplexity.measure(job, text))
    assert results[0]["before"] == results[1]["before"]
    for one, other in itertools.combinations(results, 2):
        assert one["after"] != pytest.approx(other["after"], rel=1e-3)


def test_an_embedding_in_the_head(writable: Path, tmp_path: Path, text: Path) -> None:
    """The config has its key; the perplexity is that of a model with these rows in both places."""
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


def test_a_table_that_cannot_be_a_head(writable: Path, tmp_path: Path) -> None:
    """Numbers must be finite and channels whole blocks; a head that is kept may have others."""
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
    why = r"lm_head\.weight contains NaN or infinity"
    refused(why, writable, tmp_path / "out", Settings("fp8", head="fp8"))


# -- a file that holds the head's table, under a config that ties it to the embedding


def tie(model: Path, head: torch.Tensor | None = None) -> Path:
    """`model` under such a config. `head`: its table, the embedding's if None."""
    change_config(model, tie_word_embeddings=True)
    table = load_file(model / WEIGHTS)[EMBEDDING].clone()
    change_weights(model, {HEAD: table if head is None else head})
    return model


@pytest.mark.parametrize("where", ["first", "last", "shape"])
def test_a_head_unlike_the_embedding(where: str, writable: Path, tmp_path: Path) -> None:
    """The stored table is the model's head, though one value or the shape differs; the new config
    says so."""
    table = load_file(writable / WEIGHTS)[EMBEDDING]
    if where == "shape":
        table = table[:-1].contiguous()
    else:
        table[0 if where == "first" else -1, -1] += 1
    source = open_source(tie(writable, table))
    assert (source.head_table, source.has_other_head) == (HEAD, True)
    why = r"a table of its own, though config\.json has tie_word"
    both = Settings("fp8", head="mxfp4", embedding=IN_HEAD)
    refused(why, writable, tmp_path / "out", both)
    finished(writable, tmp_path / "out", Settings("fp8", head="mxfp4"))
    assert config_of(tmp_path / "out")["tie_word_embeddings"] is False
