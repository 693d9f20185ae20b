"""The table of `hk-backend bench attention`."""

from __future__ import annotations

from hk_backend.lab import tables
from hk_backend.lab.bench.attention.measure import AttentionTiming

RATE_COLUMNS = ("hk", "sdpa", "sdpa_prepared", "matmul")
RATIO_COLUMNS = ("hk/sdpa", "hk/sdpa_prepared", "hk/matmul", "sdpa/matmul", "paged/packed")
WINS_OR_LOSES = ("hk/sdpa", "hk/sdpa_prepared")
NARROW = tables.Narrow(
    grouped=3,
    short={
        "sdpa_prepared": "sdpa+",
        "matmul": "mm",
        "hk/sdpa": "/sdpa",
        "hk/sdpa_prepared": "/sdpa+",
        "hk/matmul": "/mm",
        "sdpa/matmul": "s/mm",
        "paged/packed": "paged",
        "spread": "iqr",
    },
)
HEADINGS = ("dtype", "d", "heads", "N", "keys", *RATE_COLUMNS, *RATIO_COLUMNS, "spread")


def names(row: AttentionTiming) -> list[str]:
    case = row.case
    heads = f"{case.num_heads}/{case.num_kv_heads}"
    return [case.dtype, str(case.head_size), heads, case.length, row.kv]


def figures(row: AttentionTiming) -> list[str]:
    """Rates in GFLOP/s, ratios, spread in percent."""
    rates = [tables.rate(getattr(row, name)) for name in RATE_COLUMNS]
    ratios = [tables.ratio(row.ratios[name]) for name in RATIO_COLUMNS]
    return [*rates, *ratios, tables.spread(row.spread)]


TITLE = "attention_prefill, GFLOP/s (medians)"
TABLE = tables.Comparison(TITLE, HEADINGS, NARROW, names, figures, WINS_OR_LOSES, "hk/sdpa", "SDPA")
