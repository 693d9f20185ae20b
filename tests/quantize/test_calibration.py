"""`--method gptq` of a whole model: its inputs, its output, and how it is resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hk_backend.quantize import observed, perplexity
from hk_backend.quantize.calibrate import Calibration, calibration_windows
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.job import Job
from hk_backend.quantize.served import Serving
from hk_backend.quantize.settings import Settings
from hk_backend.quantize.source import open_source
from hk_backend.quantize.stream import Stream, check_streams
from hk_backend.quantize.text import read_text, window_of
from tests.quantize.checkpoint import (
    EMBEDDING,
    WEIGHTS,
    Interrupted,
    change_config,
    change_weights,
    contents,
    finished,
    refused,
    tensors_of,
)

WORDS = "Bananas are not rivets; a vocabulary of invented words still has letters. "
LAYERS = 3
ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(WORDS * 40)
    return path


def gptq(text: Path, format: str = "mxfp4", **changed: Any) -> Settings:
    return Settings(format, method="gptq", calibration=text, **changed)


@dataclass
class Run:
    """One uninterrupted run. `seen`: the inputs that projections share, by the first one's name;
    `rounded`: how many inputs of layers were rounded."""

    job: Job
    seen: dict[str, torch.Tensor] = field(default_factory=dict)
    rounded: int = 0


@pytest.fixture(scope="module")
def whole(model: Path, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(Job(model, tmp_path_factory.mktemp("whole") / "out", gptq(text)))
    quantize, multiplied = observed.Sharing.quantize, Serving.multiplied

    def watched(self: observed.Sharing, x: torch.Tensor) -> None:
        run.seen[next(iter(self.targets))] = x
        quantize(self, x)

    def counted(self: Serving, x: torch.Tensor) -> torch.Tensor:
        run.rounded += 1
        return multiplied(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observed.Sharing, "quantize", watched)
        patch.setattr(Serving, "multiplied", counted)
        run.job.run()
    return run


@pytest.mark.parametrize("kind", ["llama", "qwen2", "olmo3"])
def test_the_stream_is_the_model(kind: str, model: Path, tmp_path: Path) -> None:
    """Each layer computes what transformers computes with the whole model in memory. Layers of Qwen
    2 differ in their masks here, those of OLMo 3 in their rotary embeddings, too."""
    folder = model if kind == "llama" else windowed(kind, tmp_path / "model")
    job = Job(folder, tmp_path / "out", Settings("mxfp4", fold="none"))
    tokens = torch.randint(2, 10_000, (3, 20), generator=torch.Generator().manual_seed(0))
    check_streams(job.source)
    stream = Stream(job.source, tokens)
    with torch.inference_mode():
        states = perplexity.load_model(folder)(tokens, output_hidden_states=True).hidden_states
    for index in range(LAYERS):
        assert torch.allclose(stream.hidden, states[index], atol=1e-5)
        stream.hidden = stream.forward(index, stream.load(index))
    assert len(states) == LAYERS + 1  # the last is normalised


def windowed(kind: str, folder: Path) -> Path:
    """A model of which one layer sees eight tokens."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        kind,
        hidden_size=128,
        intermediate_size=192,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=10_000,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        sliding_window=8,
        use_sliding_window=True,
        pad_token_id=1,
        rope_parameters=ROPE if kind == "olmo3" else ROPE["full_attention"],
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("columns", [1, 7, 64, 1024])
def test_inputs_are_summed_up(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """H = 2 X^T X / rows is exact for whole numbers, whatever part of it is computed at once."""
    monkeypatch.setattr(observed, "COLUMNS", columns)
    parts = [torch.randint(-9, 10, (rows, 64)).float() for rows in (16, 48)]
    inputs = observed.Inputs(64)
    for part in parts:
        inputs.add(part)
    x = torch.cat(parts)
    assert torch.equal(inputs.hessian(), x.T @ x * (2 / len(x)))


def test_what_is_found_and_written(whole: Run, text: Path) -> None:
    """Every layer improves on rounding to nearest, and is written as it was found. The calibration
    text is not measured."""
    job = whole.job
    layers, tensors = job.layer_errors(), tensors_of(job.out.directory)
    assert len(layers) == 7 * LAYERS
    for found in layers:
        assert found.objective
        assert found.objective[1] < found.objective[0]
        parts = [tensors[name] for name in job.plan.layers[found.layer].names]
        target = job.method.target(job.source.finite(f"{found.layer}.weight"), found.layer)
        assert job.recipe.relative_error(*parts, target) == found.error
    assert not list(job.out.directory.glob("calibrated-*"))
    tokens = read_text(text, job.source.directory).tokens
    windows = calibration_windows(tokens, window_of(job.source))
    assert whole.rounded == 4 * len(windows) * LAYERS, "seven projections have four inputs"
    measured = perplexity.measure(job, text)
    assert measured["calibrated_tokens"] == job.calibrated_tokens > 0
    assert measured["calibrated_tokens"] + measured["tokens"] + 1 == len(tokens)
    plain = perplexity.load_model(job.source.directory)
    rest = tokens[job.calibrated_tokens :]
    assert measured["before"] == perplexity.perplexity(plain, rest, 1024)


def test_a_projection_sees_what_those_before_it_make_of_the_text(whole: Run, text: Path) -> None:
    """The inputs of a projection are those of the served model, not of the original, also from
    projections of the same decoder layer."""
    job = whole.job
    tokens = read_text(text, job.source.directory).tokens
    windows = calibration_windows(tokens, window_of(job.source))
    model = perplexity.load_model(job.source.directory)
    original = inputs_of(model, windows, whole.seen)
    perplexity.serve_quantized(model, job)
    quantized = inputs_of(model, windows, whole.seen)
    assert len(whole.seen) == 4 * LAYERS, "seven projections have four inputs"
    for name, seen in whole.seen.items():
        if name.startswith("model.layers.0.self_attn.q"):
            assert torch.allclose(seen, original[name], atol=1e-5)
            continue
        away = (original[name] - seen).norm()
        assert (quantized[name] - seen).norm() < away / 100, name


def inputs_of(
    model: torch.nn.Module, windows: torch.Tensor, names: Iterable[str]
) -> dict[str, torch.Tensor]:
    """The inputs of projections while `windows` run through `model`, by name."""
    found: dict[str, torch.Tensor] = {}

    def remember(name: str) -> Callable[[Any, Any], None]:
        return lambda module, inputs: found.update({name: inputs[0]})

    hooks = [model.get_submodule(n).register_forward_pre_hook(remember(n)) for n in names]
    with torch.inference_mode():
        model(windows)
    for hook in hooks:
        hook.remove()
    return found


def test_an_interrupted_calibration_goes_on(
    whole: Run, model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished decoder layers are not calibrated again, and the result is the same. A damaged file
    of the right size is calibrated again, and another text refused."""
    out, done, quantize = tmp_path / "out", [], Calibration.quantize
    stop = True

    def counted(self: Calibration, names: Any) -> Any:
        if stop and len(done) == 2:
            raise Interrupted
        done.append(names)
        return quantize(self, names)

    monkeypatch.setattr(Calibration, "quantize", counted)
    job = Job(model, out, gptq(text))
    with pytest.raises(Interrupted):
        job.run()
    assert job.kept() == f"0 of {len(job.plan.shards)} files and 14 of 21 layers kept"
    assert not (out / "config.json").exists()
    damaged = out / "calibrated-00001.safetensors"
    damaged.write_bytes(bytes(damaged.stat().st_size))
    with pytest.raises(QuantizeError, match=r"calibrated-00001\.safetensors is damaged .* again"):
        Job(model, out, gptq(text)).run()
    stop = False
    done.clear()
    again, counts = Job(model, out, gptq(text)), []
    again.run(lambda name, count: counts.append(count))
    assert len(done) == 2, "the damaged one, and the one that was left"
    assert sum(counts) == again.work_bytes
    ours, theirs = contents(out), contents(whole.job.out.directory)
    for each in (ours, theirs):
        del each["hk_quantize.json"]  # the other's has a perplexity, too
    assert ours == theirs
    done.clear()
    finished(model, out, gptq(text))
    assert not done, "a finished folder is calibrated again"
    other = tmp_path / "other.txt"
    other.write_text(WORDS[::-1] * 40)
    with pytest.raises(QuantizeError, match=r"started with --text \(sha256 .*, now it is --text"):
        Job(model, out, gptq(other)).run()


def test_ignored_layers_stay(model: Path, text: Path, tmp_path: Path) -> None:
    """Layers that share an input with an ignored one are quantised all the same."""
    patterns = ["model.layers.0.self_attn.*", "model.layers.2.*"]
    job = finished(model, tmp_path / "out", gptq(text, "mxfp6_e2m3", ignore=patterns))
    assert len({found.layer for found in job.layer_errors()}) == 7 + 3
    name = "model.layers.2.mlp.down_proj.weight"
    assert torch.equal(tensors_of(tmp_path / "out")[name], load_file(model / WEIGHTS)[name])
    assert job.method.rotation == 0, "only mxfp4 is rotated by default"


# -- refused


@pytest.mark.parametrize("large", [3e37, 1e30])
def test_activations_past_float32(large: float, writable: Path, text: Path, tmp_path: Path) -> None:
    """Weights are finite, but their products are not: the error names the layer."""
    names = [f"model.layers.1.mlp.{name}.weight" for name in ("gate_proj", "up_proj")]
    tensors = load_file(writable / WEIGHTS)
    change_weights(writable, {name: torch.full_like(tensors[name], large) for name in names})
    why = r"model\.layers\.1\.mlp\.down_proj: its inputs contain NaN or infinity"
    with pytest.raises(QuantizeError, match=why):
        Job(writable, tmp_path / "out", gptq(text, rotation=0)).run()
    assert not (tmp_path / "out" / "config.json").exists()


def test_what_cannot_be_calibrated(writable: Path, text: Path, tmp_path: Path) -> None:
    """A text that is too short, a table that is not finite, and Gemma are refused: Gemma scales its
    embedding by a number that no file holds."""
    short = tmp_path / "short.txt"
    short.write_text("a b")
    assert len(read_text(short, writable).tokens) == 2
    refused("2 tokens; at least 3 are needed", writable, tmp_path / "out", gptq(short))
    table = load_file(writable / WEIGHTS)[EMBEDDING]
    table[3, 5] = torch.nan
    change_weights(writable, {EMBEDDING: table})
    with pytest.raises(QuantizeError, match=f"{EMBEDDING} contains NaN or infinity"):
        Stream(open_source(writable), torch.zeros(1, 64, dtype=torch.int64))
    change_config(writable, model_type="gemma", architectures=["GemmaForCausalLM"])
    why = r"gemma computes .*, which is in no file; use another"
    refused(why, writable, tmp_path / "out", gptq(text))


@pytest.mark.parametrize(
    ("name", "tensor", "why"),
    [
        ("self_attn.q_norm", None, r" is incomplete: .*1\.self_attn\.q_norm\.weight is missing"),
        ("self_attn.k_norm", torch.ones(64), r"has the shape \[64\]; of config.json it is \[128\]"),
    ],
)
def test_a_tensor_that_the_model_lacks(
    name: str, tensor: torch.Tensor | None, why: str, tmp_path: Path
) -> None:
    """Only transformers knows the tensors of such a model."""
    folder = windowed("olmo3", tmp_path / "model")
    change_weights(folder, {f"model.layers.1.{name}.weight": tensor})
    with pytest.raises(QuantizeError, match=why):
        check_streams(open_source(folder))
