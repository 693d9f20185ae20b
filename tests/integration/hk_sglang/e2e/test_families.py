"""Tiny random models of other families than Llama, whose peculiarities show in HK's answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.hk_sglang.e2e.catalogue import RADIX
from tests.integration.shared.e2e.compare import (
    assert_routed,
    assert_true_answers,
)
from tests.integration.shared.e2e.engine import HK, Engines
from tests.integration.shared.e2e.prompts import Prompts, prefix_rounds
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.models import MAX_LENGTH, VOCABULARY

pytestmark = pytest.mark.engine_proof

LENGTHS = [2, 33, 70, 200]
"""Lengths of prompts. No piece of them is one token alone: HK would leave it as a decode."""
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


@dataclass(frozen=True)
class Family:
    """A family of models, made from transformers' configuration and its causal language model.

    `kind`: the prefix of both classes' names. `config`: arguments of the configuration. `left`:
    linear layers that stay SGLang's, by reason. `decodes`: SGLang's plain attention has all that
    the family needs. Without it only HK's prefill is asked.
    """

    kind: str
    settings: dict[str, Any]
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

    def scenario(self, folder: Path) -> Scenario:
        model = str(self.checkpoint(folder))
        prompts = Prompts(str(self), model)
        rounds = [Round(prompts.of(LENGTHS)), *prefix_rounds(prompts)]
        if not self.decodes:
            rounds = [replace(item, max_tokens=1) for item in rounds]
        engine = {**RADIX, "page_size": self.page_size}
        return Scenario(str(self), model, rounds, "float32", engine, "nothing_compiled", HK)

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
        decodes=False,  # torch_native leaves out the cap
    ),
    Family(
        "Gemma3",
        GEMMA,
        config="Gemma3Text",
        page_size=16,
        left={"an LM head that is not one of SGLang's layers: Gemma3TextScaledWordEmbedding": 1},
    ),
    Family("Qwen2", {}, page_size=16),
    Family("Qwen3", {"head_dim": 128}),
    Family("Phi3", {}),
    Family("Mixtral", EXPERTS, left=LEFT_OF_EXPERTS),
    Family(
        "GptOss",
        {**ALTERNATING, **EXPERTS},
        page_size=16,
        left=LEFT_OF_EXPERTS,
        decodes=False,  # torch_native takes no sinks
    ),
    # SGLang has no model of this family, and puts its layers into transformers' own
    Family("SmolLM3", {"no_rope_layers": [1, 0, 1, 0]}),
]


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_float32(family: Family, engines: Engines, folder: Path) -> None:
    """Chunks and a cached prefix give transformers' answers, and HK computes all of the prefill."""
    engines.add([family.scenario(folder)])
    result = engines[str(family)]
    assert_routed(result)
    linear = result.rounds[-1].workers[0].routes["linear"]
    assert linear["layers"] > 0
    assert (linear["layers_left"], linear["fallbacks"]) == (family.left, {})
    for item in result.rounds:
        assert_true_answers(item.answers, str(family.checkpoint(folder)))
    assert all(answer.cached_tokens >= 256 for answer in result.rounds[-1].answers)
