"""`attention_prefill` against torch's `scaled_dot_product_attention` on the same tensors.

One case is one causal request of `tokens` tokens after others that are cached. The candidates
alternate: SDPA on the same packed tensors; SDPA on copies that were expanded to all heads and
re-laid for it beforehand; HK on the packed tensors; HK on paged caches with the same keys and
values; and one large float32 matmul of torch's, the rate that this machine reaches with nothing but
arithmetic to do.
Causal work is counted as what the mask leaves: `4 * head_size * heads` for each pair of a query and
a key that it sees.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from hk_backend.bench import settings
from hk_backend.bench.attention.layouts import paged
from hk_backend.bench.tables import without_nan
from hk_backend.bench.timing import Timing, alternate
from hk_backend.ops import attention_prefill
from hk_backend.routing.shadow_check import tolerance

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Case:
    """One shape; `cached`: keys before those of the tokens."""

    tokens: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    dtype: str
    cached: int = 0

    @property
    def keys(self) -> int:
        return self.cached + self.tokens

    @property
    def flops(self) -> int:
        pairs = self.tokens * (self.keys + self.cached + 1) // 2
        return 4 * pairs * self.head_size * self.num_heads

    @property
    def length(self) -> str:
        """Tokens, and what is cached: `200+7992`."""
        return f"{self.tokens}+{self.cached}" if self.cached else str(self.tokens)

    def __str__(self) -> str:
        heads = f"{self.num_heads}/{self.num_kv_heads}"
        return f"N={self.length} d={self.head_size} {heads} {self.dtype}"


@dataclass
class Row:
    """HK on one case and one kind of keys; rates in GFLOP/s, from medians.

    `kv`: where HK reads keys and values: "packed" or "LAYOUT/BLOCK_SIZE".
    Ratios above 1 are wins. `error`: why it was not measured; then every number is missing.
    """

    case: Case
    kv: str
    hk: float = float("nan")
    sdpa: float = float("nan")
    sdpa_prepared: float = float("nan")
    matmul: float = float("nan")
    packed: float = float("nan")
    spread: float = float("nan")
    error: str = ""
    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def ratios(self) -> dict[str, float]:
        """HK's rate over each other's; over the packed rate for a paged row."""
        return {
            "hk/sdpa": self.hk / self.sdpa,
            "hk/sdpa_prepared": self.hk / self.sdpa_prepared,
            "hk/matmul": self.hk / self.matmul,
            "sdpa/matmul": self.sdpa / self.matmul,
            "paged/packed": self.hk / self.packed,
        }

    def as_json(self) -> dict[str, Any]:
        data = asdict(self)
        case = data.pop("case")
        return without_nan({**case, **data, **self.ratios})


def cases(
    lengths: Sequence[int],
    head_sizes: Sequence[int],
    heads: Sequence[tuple[int, int]],
    dtypes: Sequence[str],
    cached: int = 0,
) -> list[Case]:
    """Every combination, dtype outermost, length innermost."""
    grid = itertools.product(dtypes, head_sizes, heads, lengths)
    return [Case(n, query, kv, size, dtype, cached) for dtype, size, (query, kv), n in grid]


def measure(case: Case, kinds: Sequence[str], rounds: int) -> Iterator[Row]:
    """Time `case` for each of `kinds` ("packed", "nhd/16", ...), all in one alternation.

    A kind whose result differs from SDPA's, or that raises, becomes a row with `error`.
    """
    generator = torch.Generator().manual_seed(0)
    dtype = DTYPES[case.dtype]
    query = torch.randn(case.tokens, case.num_heads, case.head_size, generator=generator).to(dtype)
    key, value = (
        torch.randn(case.keys, case.num_kv_heads, case.head_size, generator=generator).to(dtype)
        for _ in range(2)
    )
    calls = _baselines(case, query, key, value)
    expected = calls["sdpa"]()
    errors = {}
    for kind in kinds:
        try:
            call = _hk_call(kind, query, key, value)
            errors[kind] = _difference(call(), expected)
            if not errors[kind]:
                calls[kind] = call
        except (ValueError, RuntimeError) as error:
            errors[kind] = str(error)
    timings = alternate(calls, rounds)
    for kind in kinds:
        if errors[kind]:
            yield Row(case, kind, error=errors[kind])
        else:
            yield _row(case, kind, timings)


def _baselines(
    case: Case, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> dict[str, Callable[[], torch.Tensor]]:
    """What HK is compared with, as calls that return `[tokens, num_heads, head_size]`."""
    q, k, v = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))
    group = case.num_heads // case.num_kv_heads
    prepared_q = q.contiguous()
    prepared_k, prepared_v = (x.repeat_interleave(group, dim=1).contiguous() for x in (k, v))
    mask: dict[str, Any] = {"is_causal": True}
    if case.cached:  # torch's own mask would be aligned with the first key
        mask = {"attn_mask": torch.ones(case.tokens, case.keys, dtype=torch.bool).tril(case.cached)}
    square = torch.randn(settings.MATMUL_SIZE, settings.MATMUL_SIZE)

    def sdpa() -> torch.Tensor:
        out = scaled_dot_product_attention(q, k, v, enable_gqa=True, **mask)
        return out[0].transpose(0, 1)

    def sdpa_prepared() -> torch.Tensor:
        return scaled_dot_product_attention(prepared_q, prepared_k, prepared_v, **mask)

    return {"sdpa": sdpa, "sdpa_prepared": sdpa_prepared, "matmul": lambda: square @ square}


def _hk_call(
    kind: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> Callable[[], torch.Tensor]:
    """HK on keys and values of `kind`, into a tensor that is made beforehand, as an engine does."""
    query_start_loc = torch.tensor([0, len(query)], dtype=torch.int32)
    arguments: dict[str, Any]
    if kind == "packed":
        key_start_loc = torch.tensor([0, len(key)], dtype=torch.int32)
        arguments = {"key": key, "value": value, "key_start_loc": key_start_loc}
    else:
        layout, _, block_size = kind.partition("/")
        cache, block_table = paged(key, value, layout, int(block_size))
        seq_lens = torch.tensor([len(key)], dtype=torch.int32)
        arguments = {"paged_kv": cache, "block_table": block_table, "seq_lens": seq_lens}
    out = torch.empty_like(query)

    def call() -> torch.Tensor:
        attention_prefill(query, query_start_loc=query_start_loc, out=out, **arguments)
        return out

    return call


def _difference(out: torch.Tensor, expected: torch.Tensor) -> str:
    """Why `out` is not the same attention as `expected` up to rounding; empty if it is."""
    limit = 2 * tolerance(out.dtype)  # each of the two may be that far from the truth
    distance = (out.float() - expected.float()).norm(dim=-1) / expected.float().norm(dim=-1)
    largest = float(distance.max())
    return "" if largest <= limit else f"differs from SDPA by {largest:.1e}, limit {limit:.1e}"


def _row(case: Case, kind: str, timings: dict[str, Timing]) -> Row:
    def rate(name: str, flops: int = case.flops) -> float:
        return flops / timings[name].median / 1e9 if name in timings else float("nan")

    kept = ("sdpa", "sdpa_prepared", "matmul", kind)
    return Row(
        case,
        kind,
        hk=rate(kind),
        sdpa=rate("sdpa"),
        sdpa_prepared=rate("sdpa_prepared"),
        matmul=rate("matmul", settings.MATMUL_FLOPS),
        packed=float("nan") if kind == "packed" else rate("packed"),
        spread=timings[kind].spread,
        samples={name: timings[name].samples for name in kept},
    )
