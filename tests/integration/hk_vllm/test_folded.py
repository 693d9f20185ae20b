"""What vLLM may be asked that does not go with a folded checkpoint."""

from __future__ import annotations

import json
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hk_vllm.linear.model import WORKER, strangers, watch_reloads
from vllm.config import ModelConfig, SpeculativeConfig
from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker

from hk_backend.quantize.recipe import RECIPES

PLAIN = {"runner_type": "generate", "enable_prompt_embeds": False}


@pytest.mark.parametrize(
    ("drafts", "lora", "model", "found"),
    [
        (None, None, {}, ("", "")),
        ("ngram", None, {}, ("", "")),
        ("draft_model", None, {}, ("", "")),
        ("eagle3", None, {}, ("", "speculative method 'eagle3'")),
        (None, "all", {}, ("LoRA adapters", "")),
        (None, None, {"runner_type": "pooling"}, ("", "--runner pooling")),
        (None, None, {"enable_prompt_embeds": True}, ("", "--enable-prompt-embeds")),
    ],
)
def test_strangers(
    drafts: str | None, lora: str | None, model: dict[str, object], found: tuple[str, str]
) -> None:
    assert {"enable_prompt_embeds", "runner"} <= ModelConfig.__dataclass_fields__.keys()
    assert "method" in SpeculativeConfig.__dataclass_fields__
    speculative = SimpleNamespace(method=drafts) if drafts else None
    config = SimpleNamespace(speculative_config=speculative, lora_config=lora)
    assert strangers(config, SimpleNamespace(**PLAIN | model)) == found


@pytest.mark.parametrize("given", ["by name", "by position"])
def test_a_checkpoint_that_is_rotated_otherwise(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before a weight is read; one that is rotated alike is read."""
    assert list(signature(GPUModelRunner.reload_weights).parameters)[2] == "weights_path"
    assert Worker.__module__ == WORKER
    assert issubclass(CPUWorker, Worker)
    read: list[Any] = []
    monkeypatch.setattr(Worker, "reload_weights", lambda worker, *args, **kwargs: read.append(args))
    watch_reloads()
    recipe = RECIPES["mxfp4"]
    ours = SimpleNamespace(quantization_config=recipe.quantization_config("mx", [], 64))
    worker = SimpleNamespace(model_config=SimpleNamespace(hf_config=ours))

    path = str(tmp_path)
    for rotation in (32, 64):
        new = {"quantization_config": recipe.quantization_config("mx", [], rotation)}
        (tmp_path / "config.json").write_text(json.dumps(new))
        why = r"are rotated \(Linear: 32\), those that they would"
        with pytest.raises(ValueError, match=why) if rotation == 32 else nullcontext():
            if given == "by name":
                Worker.reload_weights(worker, weights_path=path)
            else:
                Worker.reload_weights(worker, None, path)
    assert len(read) == 1
