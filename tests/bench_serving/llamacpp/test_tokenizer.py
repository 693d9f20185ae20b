"""A tokenizer in GGUF: which of llama.cpp's ways to split a text is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader, TokenType

from bench_serving.llamacpp.convert import write_gguf
from bench_serving.llamacpp.tokenizer import BYTE_LEVEL, LLAMA_3
from tests.bench_serving.llamacpp.conftest import bpe, config, tokenizer
from tests.models import VOCABULARY

DIGITS = {"type": "Digits", "individual_digits": True}
SPLIT = {"type": "Split", "pattern": {"Regex": LLAMA_3}, "behavior": "Isolated", "invert": False}


def fields(model: Path) -> dict[str, Any]:
    file = model / "a.gguf"
    write_gguf(model, file, "bf16")
    found = GGUFReader(file).fields
    prefix = "tokenizer.ggml."
    return {
        name.removeprefix(prefix): field.contents()
        for name, field in found.items()
        if name.startswith(prefix)
    }


@pytest.mark.parametrize(
    ("steps", "whole_words", "name"),
    [
        ([BYTE_LEVEL], False, "gpt-2"),
        ([DIGITS, BYTE_LEVEL], False, "smollm"),
        ([SPLIT, {**BYTE_LEVEL, "use_regex": False}], True, "llama-bpe"),
    ],
)
def test_its_splitting_is_found_by_its_steps(
    model: Path, steps: list[dict[str, Any]], whole_words: bool, name: str
) -> None:
    bpe(ignore_merges=whole_words)(model)
    tokenizer(pre_tokenizer={"type": "Sequence", "pretokenizers": steps})(model)
    assert fields(model)["pre"] == name


def test_tokens_have_their_places_and_kinds(model: Path) -> None:
    """Its special tokens, one that is not special, and an id that no token has."""
    config(vocab_size=VOCABULARY)(model)
    words = {"<s>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4}
    bpe(vocab=words, merges=[["a", "b"]])(model)
    special = [{"content": name, "id": words[name], "special": True} for name in ("<s>", "</s>")]
    own = {"content": "<own>", "id": 6, "special": False}
    tokenizer(added_tokens=[*special, own])(model)
    found = fields(model)
    assert found["tokens"][:7] == ["<s>", "</s>", "a", "b", "ab", "[PAD5]", "<own>"]
    assert len(found["tokens"]) == VOCABULARY
    kinds = [TokenType(kind).name for kind in found["token_type"][:7]]
    assert kinds == ["CONTROL"] * 2 + ["NORMAL"] * 3 + ["UNUSED", "USER_DEFINED"]
    assert found["merges"] == ["a b"]


def test_a_first_token_is_added_if_the_tokenizer_adds_one(model: Path) -> None:
    assert fields(model)["add_bos_token"] is False
    first = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    tokenizer(post_processor={"type": "TemplateProcessing", "single": [first, text], "pair": []})(
        model
    )
    assert fields(model)["add_bos_token"] is True
