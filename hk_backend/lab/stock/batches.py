"""Batches of attention: their tensors, their float64 result, and the error of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from hk_backend.reference import attention as reference
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.paged_kv import CacheView, PagedKV

ROWS = "B N H D"
"""Cache of TRITON_ATTN: a token's heads lie together."""
SPLIT = "B H D/x N x"
"""Keys of ROCM_ATTN, whose values lie channel-major."""
SPARE_PAGES = 4
"""Entries of the block table past the longest request. Engines' tables have room for the longest
request that they allow, and TRITON_ATTN looks up the pages of whole steps."""
MOST_ERROR = 2.0**-7
"""Most error, in units of the sum of weights times absolute values.

A bf16 kernel rounds weights and results to 8 bits, 2^-9 each; the rest allows for its exponentials
and for the rescaling of sums.
"""


@dataclass(frozen=True)
class Batch:
    """Requests of a step; request i has `queries[i]` new tokens at the end of `keys[i]` tokens.

    Args:
        page: number of tokens in a page of the cache.
        window: number of keys that a query sees, its own included; 0: all.
        soft_cap: cap of the scores; 0: none.
        sinks: whether each head has a sink.
        fp8: whether the cache is stored in FP8, with one scale each for keys and values.
    """

    queries: Sequence[int]
    keys: Sequence[int]
    heads: int
    kv_heads: int
    head_size: int
    page: int = 16
    window: int = 0
    soft_cap: float = 0.0
    sinks: bool = False
    fp8: bool = False

    @classmethod
    def prompts(cls, count: int, tokens: int, heads: int, kv_heads: int, size: int) -> Batch:
        """Fresh prompts of equal length."""
        return cls([tokens] * count, [tokens] * count, heads, kv_heads, size)

    @property
    def is_decode(self) -> bool:
        """Whether each request has one new token."""
        return set(self.queries) == {1}

    @property
    def prefill(self) -> Batch:
        """The requests of a mixed step with more than one new token, which HK computes."""
        return self._with(lambda new: new > 1)

    @property
    def decode(self) -> Batch | None:
        """The requests with one new token, which stay the engine's; None if there is none."""
        found = self._with(lambda new: new == 1)
        return found if found.queries else None

    def _with(self, wanted: Callable[[int], bool]) -> Batch:
        rows = [row for row in zip(self.queries, self.keys, strict=True) if wanted(row[0])]
        return replace(
            self, queries=tuple(new for new, _ in rows), keys=tuple(total for _, total in rows)
        )

    @property
    def flops(self) -> float:
        """Useful FLOPs: a causal query counts the keys that it sees."""
        pairs = 0
        for new, total in zip(self.queries, self.keys, strict=True):
            for key in range(total - new + 1, total + 1):
                pairs += min(key, self.window or key)
        return 4.0 * self.heads * self.head_size * pairs

    def arguments(self, layout: str, seed: int | None = 0) -> AttentionArguments:
        """The operator's arguments, with random elements, or with zeros if `seed` is None.

        Pages lie in a random order, and each page's tokens past the request's end are NaN.
        """
        random = torch.Generator().manual_seed(seed or 0)

        stored = torch.float8_e4m3fn if self.fp8 else torch.bfloat16

        def filled(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
            if seed is None:
                return torch.zeros(shape, dtype=dtype)
            return torch.randn(shape, generator=random).bfloat16()

        tokens, counts = sum(self.queries), [-(-keys // self.page) for keys in self.keys]
        pages = torch.randperm(sum(counts), generator=random).int()
        table = torch.zeros(len(counts), max(counts) + SPARE_PAGES, dtype=torch.int32)
        for request, own in enumerate(pages.split(counts)):
            table[request, : len(own)] = own
        keys, values = (
            filled(sum(counts), self.page, self.kv_heads, self.head_size, dtype=stored)
            for _ in range(2)
        )
        if seed is not None:
            for request, length in enumerate(self.keys):
                for cache in (keys, values):
                    cache[table[request, counts[request] - 1], (length - 1) % self.page + 1 :] = (
                        torch.nan
                    )
        scales = (torch.tensor([0.5]), torch.tensor([2.0])) if self.fp8 else (1.0, 1.0)
        keys, values = keys.to(stored), values.to(stored)
        lengths = torch.tensor([0, *self.queries])
        return AttentionArguments(
            query=filled(tokens, self.heads, self.head_size),
            query_start_loc=lengths.cumsum(0).int(),
            out=torch.full((tokens, self.heads, self.head_size), torch.nan, dtype=torch.bfloat16),
            paged_kv=_cache(keys, values, layout),
            block_table=table,
            seq_lens=torch.tensor(self.keys, dtype=torch.int32),
            sliding_window=self.window or None,
            logits_soft_cap=self.soft_cap or None,
            sinks=torch.randn(self.heads, generator=random) if self.sinks else None,
            k_scale=scales[0],
            v_scale=scales[1],
            max_seq_len=max(self.keys),
        )


def _cache(keys: torch.Tensor, values: torch.Tensor, layout: str) -> PagedKV:
    """The cache in a layout, from `[pages, page, heads, head size]`."""
    if layout == ROWS:
        return PagedKV.from_views(keys, ROWS, values, ROWS)
    pages, page, heads, size = keys.shape
    piece = 16 // keys.element_size()
    split = keys.view(pages, page, heads, size // piece, piece).permute(0, 2, 3, 1, 4).contiguous()
    channels = values.permute(0, 2, 3, 1).contiguous()
    return PagedKV.from_views(split, SPLIT, channels, "B H D N")


def new_tokens(given: AttentionArguments) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of the new tokens, as the engine has them before it writes the cache."""
    return _tokens(given, given.query_start_loc.diff().tolist())


def packed_tokens(given: AttentionArguments) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of all tokens, request after request, without a cache."""
    assert given.seq_lens is not None
    return _tokens(given, given.seq_lens.tolist())


def _tokens(given: AttentionArguments, counts: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of the last `counts` tokens of each request."""
    cache = given.paged_kv
    assert cache is not None
    assert given.block_table is not None
    assert given.seq_lens is not None
    both: list[torch.Tensor] = []
    for view, scale in ((cache.key, given.k_scale), (cache.value, given.v_scale)):
        own = [
            reference.gather_paged(view, cache, blocks, length)[length - count :]
            for blocks, length, count in zip(
                given.block_table, given.seq_lens.tolist(), counts, strict=True
            )
        ]
        both.append((torch.cat(own).float() * scale).bfloat16())
    return both[0], both[1]


def error_of(out: torch.Tensor, given: AttentionArguments) -> float:
    """The largest error of `out`, over the largest one that a right result may have.

    Compares with the definition in float64; a NaN counts as infinite.
    """
    expected, _ = reference.attention_prefill(given)
    mass, _ = reference.attention_prefill(_with_absolute_values(given))
    error = ((out.double() - expected).abs() / mass.clamp_min(1e-30)).max() / MOST_ERROR
    return float(torch.where(error.isnan(), torch.inf, error))


def _with_absolute_values(given: AttentionArguments) -> AttentionArguments:
    assert given.paged_kv is not None
    view = given.paged_kv.value
    values = view.tensor.float().abs().to(view.tensor.dtype)
    absolute = CacheView(values, view.strides, view.token_split, view.channel_split)
    return replace(given, paged_kv=replace(given.paged_kv, value=absolute))
