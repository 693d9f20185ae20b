"""What vLLM's client makes of a stream whose last message has choices and `usage`."""

from __future__ import annotations

import json

import pytest

from bench_serving.engines.vllm_client import apart

CHOICES = [{"text": "", "finish_reason": "length"}]
USAGE = {"completion_tokens": 32, "prompt_tokens": 512}


@pytest.mark.parametrize(
    "message",
    [
        "data: [DONE]",
        ": ping",
        f"data: {json.dumps({'choices': CHOICES})}",
        f"data: {json.dumps({'choices': CHOICES, 'usage': None})}",
        f"data: {json.dumps({'choices': [], 'usage': USAGE})}",
        'data: {"choices": [{"text": "\\"usage\\""}]}',
    ],
)
def test_other_messages_stay_as_they_are(message: str) -> None:
    assert list(apart(message)) == [message]


def test_llama_cpp_s_last_message() -> None:
    both = {"choices": CHOICES, "model": "a", "usage": USAGE}
    found = list(apart(f"data: {json.dumps(both)}"))
    assert all(message.startswith("data: ") for message in found)
    assert [json.loads(message.removeprefix("data: ")) for message in found] == [
        {"choices": CHOICES, "model": "a"},
        {"usage": USAGE},
    ]
