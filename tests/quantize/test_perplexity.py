"""Perplexity is exp of the mean loss over every token but the first, before and after."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hk_backend.quantize import perplexity
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.settings import Settings
from hk_backend.quantize.text import read_text
from tests.quantize.checkpoint import WEIGHTS, finished


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
    """After the head, in units of its outputs: Gemma 2's."""
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
    """Token by token, each after the context that its window gives it."""
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
    """Weights only: what transformers says of the model, and of it with the written values."""
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
