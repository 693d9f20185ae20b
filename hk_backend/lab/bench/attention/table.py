"""The table of `hk-backend bench attention`."""

from __future__ import annotations

from hk_backend.lab.bench import tables
from hk_backend.lab.bench.attention.measure import Row

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


def cells(row: Row) -> list[str]:
    """The cells of a row: rates in GFLOP/s, ratios, spread in percent; or why the row failed."""
    case = row.case
    shape = [case.dtype, str(case.head_size), f"{case.num_heads}/{case.num_kv_heads}"]
    shape += [case.length, row.kv]
    if row.error:
        return [*shape, f"{tables.FAILED}: {row.error}", *[""] * (len(HEADINGS) - len(shape) - 1)]
    rates = [tables.rate(getattr(row, name)) for name in RATE_COLUMNS]
    ratios = [tables.ratio(row.ratios[name]) for name in RATIO_COLUMNS]
    return [*shape, *rates, *ratios, tables.spread(row.spread)]


TITLE = "attention_prefill, GFLOP/s (medians)"
TABLE = tables.Comparison(TITLE, HEADINGS, NARROW, cells, WINS_OR_LOSES, "hk/sdpa", "SDPA")
