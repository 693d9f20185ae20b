"""Times `attention_prefill` against torch's `scaled_dot_product_attention` on the same tensors.

One case is one causal request of `tokens` new tokens after cached ones. Five candidates alternate:
SDPA on the same packed tensors.
SDPA on copies that were expanded to all heads and made contiguous beforehand.
HK on the packed tensors.
HK on paged caches with the same keys and values.
One large float32 matmul of torch, whose rate is that of pure arithmetic on this machine.

Causal work counts only what the mask leaves: `4 * head_size * heads` FLOPs for each pair of a query
and a key that it sees.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from hk_backend.lab.bench import settings
from hk_backend.lab.bench.attention.layouts import paged
from hk_backend.lab.bench.stopwatch import Timing, alternate
from hk_backend.lab.tables import without_nan
from hk_backend.ops import attention_prefill
from hk_backend.routing.shadow_check import tolerance

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class AttentionCase:
    """One shape; `cached`: number of cached keys before those of the new tokens."""

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
        """Numbers of new and cached tokens as text: `200+7992`."""
        return f"{self.tokens}+{self.cached}" if self.cached else str(self.tokens)

    def __str__(self) -> str:
        heads = f"{self.num_heads}/{self.num_kv_heads}"
        return f"N={self.length} d={self.head_size} {heads} {self.dtype}"


@dataclass
class AttentionTiming:
    """HK's result on one case and one kind of keys; rates in GFLOP/s, from medians.

    `kv`: kind of the keys and values: "packed" or "LAYOUT/BLOCK_SIZE".
    `error`: reason why HK was not measured; every number is missing then.
    """

    case: AttentionCase
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
        """Ratios of rates, by column; above 1, the first is faster. `paged/packed`: both HK's."""
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
) -> list[AttentionCase]:
    """All combinations of the arguments as cases: dtype outermost, length innermost."""
    grid = itertools.product(dtypes, head_sizes, heads, lengths)
    return [
        AttentionCase(n, query, kv, size, dtype, cached) for dtype, size, (query, kv), n in grid
    ]


def measure(case: AttentionCase, kinds: Sequence[str], rounds: int) -> Iterator[AttentionTiming]:
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
            yield AttentionTiming(case, kind, error=errors[kind])
        else:
            yield _row(case, kind, timings)


def _baselines(
    case: AttentionCase, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> dict[str, Callable[[], torch.Tensor]]:
    """The calls that HK is compared with; `sdpa` returns `[tokens, num_heads, head_size]`."""
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
    """A call of HK on keys and values of `kind`; as in an engine, its output exists already."""
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
    """Reason why `out` differs from `expected` by more than rounding; empty if it does not."""
    limit = 2 * tolerance(out.dtype)  # each of the two may differ this much from the exact result
    distance = (out.float() - expected.float()).norm(dim=-1) / expected.float().norm(dim=-1)
    largest = float(distance.max())
    return "" if largest <= limit else f"differs from SDPA by {largest:.1e}, limit {limit:.1e}"


def _row(case: AttentionCase, kind: str, timings: dict[str, Timing]) -> AttentionTiming:
    def rate(name: str, flops: int = case.flops) -> float:
        return flops / timings[name].median / 1e9 if name in timings else float("nan")

    kept = ("sdpa", "sdpa_prepared", "matmul", kind)
    return AttentionTiming(
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
