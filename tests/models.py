"""The models that the tests serve: tiny random Llamas, and SmolLM2-135M for real text.

A random Llama is only worth serving if its attention matters: weights drawn wide enough that
scores are spread, and an output head of its own (tied, a random Llama repeats its input).
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"
"""Folder that keeps SmolLM2 between runs; git ignores it."""

VOCABULARY = 10_240
"""`vllm bench latency` draws token ids up to 10,000."""
TINY_LAYERS = 3
TINY_HEADS = 8
TINY_KV_HEADS = 2
MAX_LENGTH = 2048


def tiny_llama(directory: Path, head_size: int) -> Path:
    """A random float32 Llama checkpoint with its own tokenizer, built in `directory` once."""
    from transformers import LlamaConfig, LlamaForCausalLM

    checkpoint = directory / f"tiny-llama-{head_size}"
    if checkpoint.is_dir():
        return checkpoint
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=TINY_LAYERS,
        num_attention_heads=TINY_HEADS,
        num_key_value_heads=TINY_KV_HEADS,
        head_dim=head_size,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.08,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(head_size)
        model = LlamaForCausalLM(config)
    directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=directory))
    model.save_pretrained(scratch)
    _tokenizer().save_pretrained(scratch)
    shutil.move(scratch, checkpoint)
    return checkpoint


def smollm2() -> Path:
    """SmolLM2-135M-Instruct, fetched and converted on first use.

    Its weights are bfloat16: an engine and the oracle may compute with them in float32.
    """
    from bench_serving.smollm2 import ensure_checkpoint

    return ensure_checkpoint(MODELS, "bfloat16")


def random_prompts(lengths: list[int], seed: int) -> list[list[int]]:
    """Token ids for a tiny Llama, the same for the same seed; no special tokens."""
    rng = random.Random(seed)
    return [[rng.randrange(2, 10_000) for _ in range(length)] for length in lengths]


@cache
def real_text(checkpoint: Path) -> list[int]:
    """A long English text in the model's tokens: the project's own licence."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    text = " ".join((ROOT / "LICENSE").read_text().split())
    tokens: list[int] = tokenizer(text)["input_ids"]
    return tokens


def real_prompts(checkpoint: Path, lengths: list[int]) -> list[list[int]]:
    """Consecutive pieces of `real_text`, of the lengths asked for."""
    text = real_text(checkpoint)
    if sum(lengths) > len(text):
        raise ValueError(f"lengths: {sum(lengths)} tokens asked for, the text has {len(text)}")
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return [text[end - length : end] for end, length in zip(ends, lengths, strict=True)]


@cache
def _tokenizer() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_invented_text(), trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise RuntimeError(f"the tokenizer has {tokenizer.get_vocab_size()} tokens")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def _invented_text() -> Iterator[str]:
    """Sentences of invented words, enough of them for the whole vocabulary."""
    rng = random.Random(0)
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvz" for vowel in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(12_000)]
    for _ in range(4_000):
        yield " ".join(rng.choices(words, k=20))
