"""Tiny random models of other families than Llama: what each has of its own is in HK's answers, and
the same model without it answers otherwise."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.integration.hk_sglang.e2e.catalogue import RADIX
from tests.integration.shared.e2e.compare import (
    assert_routed,
    assert_true_answers,
    assert_true_logprobs,
)
from tests.integration.shared.e2e.engine import HK, Checkpoint, Reader
from tests.integration.shared.e2e.prompts import Prompts, prefix_rounds
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.models import MAX_LENGTH, VOCABULARY

pytestmark = pytest.mark.engine_proof

LENGTHS = [2, 33, 70, 200]
"""No piece of them is one token alone: that is a decode, which is not HK's."""
LAYERS = 4
WINDOW = 32
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_LENGTH,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
ALTERNATING = {
    "head_dim": 64,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2),
}
GEMMA = {**ALTERNATING, "query_pre_attn_scalar": 64, "tie_word_embeddings": True}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
LEFT_OF_EXPERTS = {
    "SGLang's models may read its weight themselves": LAYERS,  # the routers
    "experts of a mixture: HK has no kernel for them": LAYERS,
}

Lack = str | dict[str, Any]
"""What a model is without: tensors whose names end so, made zero; or settings, as they are then."""


@dataclass(frozen=True)
class Family:
    """`kind`: of transformers' class for causal language models. `config`: of its configuration's.

    `left`: linear layers that stay SGLang's, by reason. `decodes`: SGLang's plain attention has all
    that the family needs; else HK's prefill is asked alone.
    """

    kind: str
    settings: dict[str, Any]
    without: tuple[Lack, ...]
    config: str = ""
    page_size: int = 1
    left: dict[str, int] = field(default_factory=dict)
    decodes: bool = True

    def __str__(self) -> str:
        return self.kind.lower()

    def checkpoint(self, folder: Path) -> Path:
        """The model, made in `folder` once."""
        path = folder / "families" / str(self)
        if not path.is_dir():
            self._make(path)
        return path

    def lacking(self, lack: Lack, folder: Path) -> Path:
        """The model without `lack`."""
        path = folder / "families" / f"{self}-without-{self.without.index(lack)}"
        shutil.copytree(self.checkpoint(folder), path)
        if isinstance(lack, dict):
            config = json.loads((path / "config.json").read_text())
            (path / "config.json").write_text(json.dumps(config | lack))
            return path
        tensors = load_file(path / "model.safetensors")
        ending = [name for name in tensors if name.endswith(lack)]
        assert ending, f"no tensor's name ends with {lack}"
        tensors |= {name: torch.zeros_like(tensors[name]) for name in ending}
        save_file(tensors, path / "model.safetensors", {"format": "pt"})
        return path

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        model = str(self.checkpoint(folder))
        prompts = Prompts(str(self), model)
        rounds = [Round(prompts.of(LENGTHS)), *prefix_rounds(prompts)]
        if not self.decodes:
            rounds = [replace(item, max_tokens=1) for item in rounds]
        engine = {**RADIX, "page_size": self.page_size}
        return [Scenario(str(self), model, rounds, "float32", engine, "nothing_compiled", HK)]

    def _make(self, path: Path) -> None:
        import transformers

        config = getattr(transformers, f"{self.config or self.kind}Config")
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(1)
            model = getattr(transformers, f"{self.kind}ForCausalLM")(
                config(**{**SIZES, **self.settings})
            )
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(std=0.08)
                else:  # norms, biases, and sinks, which SGLang keeps in bfloat16
                    parameter.add_(torch.randn_like(parameter) / 4).copy_(parameter.bfloat16())
        model.save_pretrained(path)


FAMILIES = [
    Family(
        "Gemma2",
        {**GEMMA, "hidden_act": "gelu_pytorch_tanh"}
        | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": None},
        ({"attn_logit_softcapping": None}, {"sliding_window": MAX_LENGTH}),
        decodes=False,  # torch_native leaves out the cap
    ),
    Family(
        "Gemma3",
        GEMMA,
        ("k_norm.weight", {"sliding_window": MAX_LENGTH}),
        config="Gemma3Text",
        page_size=16,
        left={"an LM head that is not one of SGLang's layers: Gemma3TextScaledWordEmbedding": 1},
    ),
    Family("Qwen2", {}, ("q_proj.bias", "v_proj.bias"), page_size=16),
    Family("Qwen3", {"head_dim": 128}, ("q_norm.weight", "k_norm.weight")),
    Family("Phi3", {}, ("qkv_proj.weight", "gate_up_proj.weight")),
    Family("Mixtral", EXPERTS, ({"num_experts_per_tok": 1},), left=LEFT_OF_EXPERTS),
    Family(
        "GptOss",
        {**ALTERNATING, **EXPERTS},
        ("sinks", {"sliding_window": MAX_LENGTH}),
        page_size=16,
        left=LEFT_OF_EXPERTS,
        decodes=False,  # torch_native takes no sinks
    ),
    # one that SGLang does not have: transformers' own, in which it puts its layers
    Family("SmolLM3", {"no_rope_layers": [1, 0, 1, 0]}, ({"no_rope_layers": [1] * LAYERS},)),
]


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_float32(family: Family, served: Reader, folder: Path) -> None:
    """Chunks and a cached prefix as transformers has them, all of the prefill by HK; the same model
    without what makes the family differs."""
    result = served(str(family)).only
    assert_routed(result)
    linear = result.rounds[-1].workers[0].routes["linear"]
    assert linear["layers"] > 0
    assert (linear["layers_left"], linear["fallbacks"]) == (family.left, {})
    for item in result.rounds:
        assert_true_answers(item.answers, str(family.checkpoint(folder)))
    assert all(answer.cached_tokens >= 256 for answer in result.rounds[-1].answers)
    for lack in family.without:
        with pytest.raises(AssertionError, match="log-probability"):
            assert_true_logprobs(result.rounds[0].answers, str(family.lacking(lack, folder)))
