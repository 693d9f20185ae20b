"""What does not go with a folded checkpoint, and that stock reads no rotated one."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest
from hk_sglang.linear.model import EMBEDDINGS, _tokenize, strangers
from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
from sglang.srt.managers.tokenizer_manager import TokenizerManager
from sglang.srt.server_args import ServerArgs

from hk_backend.engine.patching import MARK
from hk_backend.terms.folds import ALL, FOLD_KEY, HEADS
from tests.integration.hk_sglang.linear_layers import installed


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ({}, ("", "")),
        ({"speculative_algorithm": "NGRAM"}, ("", "")),
        ({"speculative_algorithm": "STANDALONE"}, ("", "")),
        ({"speculative_algorithm": "EAGLE"}, ("", "--speculative-algorithm EAGLE")),
        ({"enable_lora": True}, ("LoRA adapters", "")),
        ({"lora_paths": ["a"]}, ("LoRA adapters", "")),
        ({"is_embedding": True}, ("", "--is-embedding")),
        ({"enable_return_hidden_states": True}, ("", "--enable-return-hidden-states")),
        ({"return_hidden_states_mode": "last"}, ("", "--return-hidden-states-mode")),
        ({"enable_return_aux_hidden_states": True}, ("", "--enable-return-aux-hidden-states")),
    ],
)
def test_strangers(flags: dict[str, Any], found: tuple[str, str]) -> None:
    """Of SGLang's own arguments, as a user sets them."""
    assert strangers(ServerArgs(model_path="dummy", **flags)) == found
    names = ("speculative_algorithm", "enable_lora", "lora_paths")
    older = SimpleNamespace(**dict.fromkeys(names), is_embedding=False)
    assert strangers(older) == ("", ""), "an SGLang with fewer options"


def test_every_request_is_looked_at() -> None:
    """Where SGLang turns one into tokens, once the route is installed; by fields that it has."""
    for kind in (GenerateReqInput, EmbeddingReqInput):
        assert set(EMBEDDINGS) <= {field.name for field in fields(kind)}
    with installed():
        assert hasattr(TokenizerManager._tokenize_one_request, MARK)


async def tokens(manager: Any, request: Any) -> str:
    """As SGLang's, a coroutine."""
    return "tokens"


@pytest.mark.parametrize(
    ("fold", "embeds", "served"),
    [(ALL, [[0.0]], False), (ALL, None, True), (HEADS, [[0.0]], True), (None, [[0.0]], True)],
)
@pytest.mark.parametrize("name", ["input_embeds", "positional_embed_overrides"])
def test_a_request_of_embeddings(name: str, fold: str | None, embeds: Any, served: bool) -> None:
    """No flag says that one will come: each is looked at, and refused alone."""
    quantization = {FOLD_KEY: fold} if fold else {}
    model = SimpleNamespace(hf_config=SimpleNamespace(quantization_config=quantization))
    manager = SimpleNamespace(model_config=model)
    request = SimpleNamespace(**{name: embeds})
    if served:
        assert asyncio.run(_tokenize(tokens, manager, request)) == "tokens"
        return
    with pytest.raises(ValueError, match=r"hk_folded 'all'.*is not valid with " + name):
        _tokenize(tokens, manager, request)
