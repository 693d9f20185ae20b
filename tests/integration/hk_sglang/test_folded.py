"""What SGLang may be asked that does not go with a folded checkpoint."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hk_sglang.linear.model import strangers

PLAIN = {
    "speculative_algorithm": None,
    "is_embedding": False,
    "enable_return_hidden_states": False,
    "enable_lora": None,
    "lora_paths": None,
}


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
    ],
)
def test_strangers(flags: dict[str, object], found: tuple[str, str]) -> None:
    assert strangers(SimpleNamespace(**PLAIN | flags)) == found


def test_sglang_has_these_options() -> None:
    from sglang.srt.server_args import ServerArgs

    assert strangers(ServerArgs(model_path="dummy")) == ("", "")
