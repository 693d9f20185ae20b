"""Writes a checkpoint's tokenizer into a GGUF file, in the way of llama.cpp's own converter.

llama.cpp has built-in, named ways to split text into words. Its converter finds the name from the
tokens of a sample text; this module compares the tokenizer's splitting rules instead.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gguf import GGUFWriter, SpecialVocab, TokenType

from bench_serving.llamacpp.errors import ConvertError

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITTINGS: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [BYTE_LEVEL],
    "smollm": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL],
    "llama-bpe": [
        {
            "type": "Split",
            "pattern": {"Regex": LLAMA_3},
            "behavior": "Isolated",
            "invert": False,
        },
        {**BYTE_LEVEL, "use_regex": False},
    ],
}
"""Steps of `pre_tokenizer`, by llama.cpp's name for them."""
WHOLE_WORDS = ("llama-bpe",)
"""Names for which llama.cpp keeps a word that is a token, without looking at merges."""


def add_tokenizer(writer: GGUFWriter, checkpoint: Path, vocabulary: int) -> None:
    """Write the tokenizer of `checkpoint`, whose embedding has `vocabulary` rows.

    Raises:
        ConvertError: the checkpoint has no tokenizer, or one that llama.cpp does not reproduce.
    """
    path = checkpoint / "tokenizer.json"
    try:
        tokenizer = json.loads(path.read_text())
        model = tokenizer["model"]
    except FileNotFoundError:
        raise ConvertError(f"{checkpoint} has no tokenizer.json") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConvertError(f"{path} is not a tokenizer: {error!r}") from None
    name = _splitting(path, tokenizer)
    plain = {"type": "BPE", "byte_fallback": False, "ignore_merges": name in WHOLE_WORDS}
    for key, value in plain.items():
        if (model.get(key) or False) != value:
            raise ConvertError(f"{path}: model.{key} is {model.get(key)!r}, expected {value!r}")
    tokens, types = _tokens(path, tokenizer, vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    special = SpecialVocab(checkpoint, load_merges=True, n_vocab=vocabulary)
    for each in ("bos", "eos"):
        special.add_special_token.setdefault(each, False)  # otherwise the name decides
    special.add_to_gguf(writer, quiet=True)


def _splitting(path: Path, tokenizer: dict[str, Any]) -> str:
    if tokenizer.get("normalizer"):
        raise ConvertError(f"{path}: normalizer is {tokenizer['normalizer']}, expected none")
    found = tokenizer.get("pre_tokenizer") or {}
    steps = found.get("pretokenizers", [found])
    for name, expected in SPLITTINGS.items():
        if len(steps) == len(expected) and all(map(_includes, steps, expected)):
            return name
    raise ConvertError(
        f"{path}: pre_tokenizer is {json.dumps(found)}; those of {', '.join(SPLITTINGS)} are known"
    )


def _includes(step: dict[str, Any], expected: dict[str, Any]) -> bool:
    return expected.items() <= {"use_regex": True, **step}.items()


def _tokens(
    path: Path, tokenizer: dict[str, Any], vocabulary: int
) -> tuple[list[str], list[TokenType]]:
    """Texts and types of all tokens, by id; ids without a token get a made-up name."""
    tokens = [f"[PAD{index}]" for index in range(vocabulary)]
    types = [TokenType.UNUSED] * vocabulary
    added = {each["content"]: each for each in tokenizer.get("added_tokens", [])}
    ids = tokenizer["model"]["vocab"] | {text: each["id"] for text, each in added.items()}
    for text, index in ids.items():
        if index >= vocabulary:
            raise ConvertError(
                f"{path}: token {text!r} is number {index}; the embedding has {vocabulary} rows"
            )
        tokens[index], types[index] = text, TokenType.NORMAL
        if text in added:
            special = added[text]["special"]
            types[index] = TokenType.CONTROL if special else TokenType.USER_DEFINED
    return tokens, types
