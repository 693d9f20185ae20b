"""Measures a model's perplexity on a text, before and after quantisation.

Both models run in transformers in float32 (4 bytes a parameter; quantised layers replace the
original ones). Each quantised layer is read back from the output's files and computed by HK's
operators as in serving (`hk_backend.quantize.served`), except for the rounding of a 16-bit engine.
Activations are quantised as config.json says. Calibration tokens are not measured on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open

from hk_backend.ops.head_format import KEPT
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.head_costs import compared_heads, costs, look_up_in
from hk_backend.quantize.source import TIED
from hk_backend.quantize.text import import_transformers, read_text, window_of

if TYPE_CHECKING:
    from hk_backend.quantize.job import Job
    from hk_backend.quantize.plan import Item

SOFT_CAP = "final_logit_softcapping"
"""Key of a model's config: the value at which transformers caps the head's logits (Gemma 2)."""

Advance = Callable[[str, int, int], None]
"""Function that is called after each window: the measurement's name, tokens scored, all tokens."""


def measure(job: Job, path: Path, advance: Advance = lambda what, done, total: None) -> Any:
    """Measure perplexities of the finished `job` on a text file; returns the report's entry.

    Results of an earlier run on the same text are kept, not measured again.

    Raises:
        QuantizeError: the text or the model does not load, or transformers is not installed.
    """
    text = read_text(path, job.source.directory, job.source.vocabulary)
    tokens, length = text.tokens[job.calibrated_tokens :], window_of(job.source)
    with job.out.opened(0):
        found = job.out.report.get("perplexity", {})
        if (found.get("sha256"), found.get("window")) != (text.sha256, length):
            found = {"text": str(path), "sha256": text.sha256, "window": length}
            found |= {"tokens": len(tokens) - 1, "calibrated_tokens": job.calibrated_tokens}
        if {"before", "after", "heads"} <= found.keys():
            return found
        model = load_model(job.source.directory, untied=job.source.has_other_head)
        if "before" not in found:
            found["before"] = perplexity(model, tokens, length, partial(advance, "before"))
            job.out.report["perplexity"] = found
            job.out.save_report()
        serve_quantized(model, job)
        heads = compared_heads(model.get_submodule("lm_head"), job)
        if job.embedding != KEPT:
            look_up_in(model, heads[job.head])
        after = perplexities(model, tokens, length, heads, partial(advance, "after"))
        found |= {"after": after[job.head], "heads": costs(model, job, heads, after)}
        job.out.report["perplexity"] = found
        job.out.save_report()
    return found


def perplexity(
    model: torch.nn.Module,
    tokens: list[int],
    length: int,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> float:
    """The exponential of the mean negative log-likelihood of every token but the first."""
    return perplexities(model, tokens, length, {"": model.get_submodule("lm_head")}, advance)[""]


def perplexities(
    model: torch.nn.Module,
    tokens: list[int],
    length: int,
    heads: Mapping[str, torch.nn.Module],
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, float]:
    """The perplexity with each of `heads` as the model's LM head; all share the same inputs.

    Raises:
        QuantizeError: a perplexity is not finite: the model has NaN or infinity in a tensor.
    """
    losses, done = dict.fromkeys(heads, 0.0), 0
    cap = getattr(model.config, SOFT_CAP, None)
    for begin, first, end in windows(len(tokens), length):
        inputs = torch.tensor([tokens[begin : end - 1]])
        targets = torch.tensor(tokens[first:end])
        with torch.inference_mode(), without_head(model):
            hidden = model(inputs, logits_to_keep=end - first, use_cache=False).logits[0]
            for name, head in heads.items():
                logits = head(hidden).float()
                logits = torch.tanh(logits / cap) * cap if cap else logits
                scores = torch.log_softmax(logits, dim=-1).gather(1, targets[:, None])
                losses[name] -= float(scores.sum(dtype=torch.float64))
        done += end - first
        advance(done, len(tokens) - 1)
    if not all(map(math.isfinite, losses.values())):
        raise QuantizeError("the perplexity is not finite: a tensor contains NaN or infinity")
    return {name: math.exp(loss / done) for name, loss in losses.items()}


@contextmanager
def without_head(model: torch.nn.Module) -> Iterator[None]:
    """Remove the model's head while the block runs, so that logits are the head's inputs."""
    head, cap = model.lm_head, getattr(model.config, SOFT_CAP, None)
    model.lm_head = torch.nn.Identity()
    setattr(model.config, SOFT_CAP, None)
    try:
        yield
    finally:
        model.lm_head = head
        setattr(model.config, SOFT_CAP, cap)


def windows(count: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Yields `(begin, first, end)`: the model reads from `begin`, and `first` to `end` are scored.

    Every token but the first is scored once. After the first window, every scored token has at
    least half a window of tokens before it.
    """
    begin, first = 0, 1
    while first < count:
        end = min(begin + length, count)
        yield begin, first, end
        first = end
        begin = end - length // 2


def serve_quantized(model: torch.nn.Module, job: Job) -> None:
    """Load the job's files into `model`, with each quantised layer computed as in serving."""
    for item, [values] in _held(job, quantized=False):
        model.load_state_dict({item.source.name: values}, strict=False)
    for item, (codes, scales) in _held(job, quantized=True):
        bias = getattr(model.get_submodule(item.layer), "bias", None)
        layer = job.serving_of(item.layer).layer(codes, scales, bias)
        model.set_submodule(item.layer, layer)


def _held(job: Job, quantized: bool) -> Iterator[tuple[Item, list[torch.Tensor]]]:
    """The tensors in the job's files: those of quantised layers, or all others."""
    for shard in job.plan.shards:
        with safe_open(job.out.directory / shard.file, framework="pt") as file:
            for item in shard.items:
                if bool(item.layer) == quantized:
                    yield item, [file.get_tensor(name) for name in item.names]


def load_model(directory: Path, untied: bool = False) -> torch.nn.Module:
    """Load a model in float32.

    Args:
        untied: the model's LM head is not the embedding, whatever config.json says.

    Raises:
        QuantizeError: transformers cannot load the model, or is not installed.
    """
    instead = {TIED: False} if untied else {}
    try:
        model = import_transformers("--text").AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, local_files_only=True, **instead
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise QuantizeError(f"{directory}: transformers cannot load it: {error}") from None
    model.eval()
    return model  # type: ignore[no-any-return]
