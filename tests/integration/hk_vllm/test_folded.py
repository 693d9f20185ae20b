"""What vLLM may be asked that does not go with a folded checkpoint."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hk_vllm.linear.model import strangers

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
    speculative = SimpleNamespace(method=drafts) if drafts else None
    config = SimpleNamespace(speculative_config=speculative, lora_config=lora)
    assert strangers(config, SimpleNamespace(**PLAIN | model)) == found


def test_vllm_has_these_options() -> None:
    """By the names that are asked for here."""
    from vllm.config import ModelConfig, SpeculativeConfig

    assert {"enable_prompt_embeds", "runner"} <= ModelConfig.__dataclass_fields__.keys()
    assert "method" in SpeculativeConfig.__dataclass_fields__
