"""Cases of `bench gpu --against stock`: attention and linear layers, as models have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hk_backend.lab.bench.gemm.layers import MODELS, weights
from hk_backend.lab.stock.batches import Batch
from hk_backend.lab.stock.layers import FORMATS, Layer

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
TOKENS = 16384
"""Tokens of a batch of prompts."""
ROWS = (1, 16, 64, 256, 512, 2048, 8192)
"""Rows of a linear layer."""
RAGGED = (1893, 37, 512, 2210, 93, 764, 151, 1340, 29, 418, 3071, 226)
"""Tokens of prompts in one step: lengths as chats have them."""
DECODES = tuple(150 + 61 * request for request in range(64))
"""Tokens of the requests that decode beside such prompts: up to 3993."""
DECODED = {"1x8k": (1, 8192), "32x8k": (32, 8192), "128x8k": (128, 8192), "1x128k": (1, 131072)}
"""Requests that each decode a token, and the keys of each one."""
SHORT = (300, 130, 70, 5, 33)
"""Keys of the requests of small decode steps, in turn."""
MOST_SHORT = 18
"""Most requests of a small decode step: more than 16, from which on engines take other kernels."""
CHUNK, CONTEXT = 2048, 6144
"""New tokens of a long prompt's last chunk, and the tokens before them."""


ATTENTION: Mapping[str, Batch] = {
    "llama8b": Batch((), (), 32, 8, 128),
    "llama70b": Batch((), (), 64, 8, 128),
    "llama70b/tp8": Batch((), (), 8, 1, 128),
    "llama8b-fp8-cache": Batch((), (), 32, 8, 128, fp8=True),
    "qwen3-235b": Batch((), (), 64, 4, 128),
    "gpt-oss-full": Batch((), (), 64, 8, 64, sinks=True),
    "gpt-oss-window": Batch((), (), 64, 8, 64, window=128, sinks=True),
    "d64": Batch((), (), 64, 8, 64),
    "gemma2-9b": Batch((), (), 16, 8, 256, soft_cap=50.0),
}
"""Layers of models on one GPU, without requests; `d64` is gpt-oss without its sinks."""

DECODE: Mapping[str, Batch] = {
    "llama8b": ATTENTION["llama8b"],
    "llama8b-fp8-cache": ATTENTION["llama8b-fp8-cache"],
    "llama1b": Batch((), (), 32, 8, 64),
    "gpt-oss-full": ATTENTION["gpt-oss-full"],
}
"""Layers of models that decode on one GPU."""


@dataclass(frozen=True)
class Case:
    """One row of the comparison: a batch of attention, or a linear layer."""

    name: str
    of: Batch | Layer

    @property
    def small(self) -> Batch | Layer:
        """The same computation with few tokens, on which results are held against float64."""
        if isinstance(self.of, Layer):
            return Layer(self.of.format, min(self.of.m, 70), 272, 640)
        if (
            self.of.is_decode
        ):  # with all heads and some requests, on which choices of kernels depend
            count = min(len(self.of.queries), MOST_SHORT)
            keys = tuple(SHORT[request % len(SHORT)] for request in range(count))
            return replace(self.of, queries=(1,) * count, keys=keys)
        group = self.of.heads // self.of.kv_heads
        decodes = (1, 1) if self.of.decode else ()
        return replace(
            self.of,
            queries=(*decodes, 70, 33, 5),
            keys=(*(130 for _ in decodes), 70, 200, 5),
            heads=2 * group,
            kv_heads=2,
            window=min(self.of.window, 48),
        )


def attention_cases() -> Iterator[Case]:
    """Batches of prompts: of one length, ragged, beside decodes, the last chunk of a long one."""
    for name, of in ATTENTION.items():
        for length in LENGTHS:
            prompts = (length,) * (TOKENS // length)
            yield Case(f"{name} n{length}", replace(of, queries=prompts, keys=prompts))
        yield Case(f"{name} ragged", replace(of, queries=RAGGED, keys=RAGGED))
        ones = (1,) * len(DECODES)
        mixed = replace(of, queries=(*ones, *RAGGED), keys=(*DECODES, *RAGGED))
        yield Case(f"{name} mixed", mixed)
        yield Case(f"{name} chunk", replace(of, queries=(CHUNK,), keys=(CHUNK + CONTEXT,)))


def decode_cases() -> Iterator[Case]:
    """Steps in which every request decodes a token over as many keys."""
    for model, of in DECODE.items():
        for name, (requests, keys) in DECODED.items():
            step = replace(of, queries=(1,) * requests, keys=(keys,) * requests)
            yield Case(f"{model} decode {name}", step)


def linear_cases() -> Iterator[Case]:
    """The layers of the Llamas in every format, for each number of rows."""
    for model in MODELS:
        for ranks in (1, 8) if model == "llama70b" else (1,):
            for name, (n, k) in weights(model, ranks).items():
                for format in FORMATS:
                    for m in ROWS:
                        yield Case(f"{name} {format} m{m}", Layer(format, m, n, k))


def chosen_cases(words: str) -> list[Case]:
    """The cases whose names have all words of a part of `words` between commas; all without words.

    Raises `ValueError` for a part that selects nothing.
    """
    every = [*attention_cases(), *decode_cases(), *linear_cases()]
    wanted = [set(part.split()) for part in words.split(",")]
    for part in wanted:
        if not any(part <= set(case.name.split()) for case in every):
            valid = dict.fromkeys(word for case in every for word in case.name.split())
            raise ValueError(f"{' '.join(sorted(part))!r} is no case; words: {', '.join(valid)}")
    return [case for case in every if any(part <= set(case.name.split()) for part in wanted)]
