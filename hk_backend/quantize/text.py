"""Reads a text as a model's tokens, to calibrate on and to measure perplexity on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hk_backend.extras import missing
from hk_backend.quantize.errors import EXTRA, QuantizeError
from hk_backend.quantize.source import Source

WINDOW = 1024
"""Number of tokens that the model sees at once, if it can see as many."""


@dataclass(frozen=True)
class Text:
    """A text in the model's tokens, and the SHA-256 of its file."""

    sha256: str
    tokens: list[int]


def read_text(path: Path, model: Path, vocabulary: int = 0, least: int = 2) -> Text:
    """A text file in the tokens of the model in the folder `model`.

    Args:
        vocabulary: number of tokens that the model has an embedding for; 0: unknown.
        least: number of tokens that the text must have.

    Raises:
        QuantizeError: the file cannot be read, is not UTF-8 or too short, or the tokenizer does not
            load or is not the model's.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode()
    except FileNotFoundError:
        raise QuantizeError(f"--text {path}: no such file") from None
    except IsADirectoryError:
        raise QuantizeError(f"--text {path}: it is a folder; expected a text file") from None
    except UnicodeDecodeError as error:
        what = f"it is not UTF-8 text ({error.reason} at byte {error.start})"
        raise QuantizeError(f"--text {path}: {what}") from None
    except OSError as error:
        raise QuantizeError(f"--text {path}: {error.strerror}") from None
    transformers = import_transformers("--text")
    try:
        tokens = transformers.AutoTokenizer.from_pretrained(model)(text)["input_ids"]
    except Exception as error:  # an invalid tokenizer.json raises anything
        raise QuantizeError(f"{model}: its tokenizer does not load: {error!r}") from None
    if len(tokens) < least:
        raise QuantizeError(f"--text {path}: {len(tokens)} tokens; at least {least} are needed")
    if vocabulary and max(tokens) >= vocabulary:
        raise QuantizeError(
            f"{model}: its tokenizer has a token {max(tokens)}, the model has {vocabulary}"
        )
    return Text(hashlib.sha256(raw).hexdigest(), tokens)


def window_of(source: Source) -> int:
    """Number of tokens in a window: `WINDOW`, or fewer if the model sees fewer."""
    return min(WINDOW, int(source.config.get("max_position_embeddings") or WINDOW))


def import_transformers(option: str) -> Any:
    """The package transformers, without its progress bars. `option`: what needs it.

    Raises:
        QuantizeError: transformers is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise QuantizeError(missing(error, option, EXTRA)) from None
    transformers.utils.logging.disable_progress_bar()
    return transformers
