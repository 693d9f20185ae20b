"""The table of `hk-backend bench linear`."""

from __future__ import annotations

from hk_backend.lab import tables
from hk_backend.lab.bench.linear.measure import LinearTiming

WINS_OR_LOSES = ("hk/fp32", "hk/bf16")
NARROW = tables.Narrow(
    grouped=2,
    short={
        "activations": "",
        "HK ms": "ms",
        "GFLOP/s": "GF/s",
        "hk/fp32": "/fp32",
        "hk/bf16": "/bf16",
        "hk/matmul": "/mm",
        "hk/bound": "/bound",
        "format/bf16": "/hk16",
        "spread": "iqr",
    },
)
HEADINGS = (
    "layer",
    "N x K",
    "M",
    "weight",
    "activations",
    "HK ms",
    "GFLOP/s",
    "GB/s",
    *WINS_OR_LOSES,
    "hk/matmul",
    "hk/bound",
    "bound",
    "format/bf16",
    "spread",
)


def names(row: LinearTiming) -> list[str]:
    case = row.case
    return [case.layer, f"{case.n}x{case.k}", str(case.tokens), row.format, row.activations]


def figures(row: LinearTiming) -> list[str]:
    rates = [f"{row.hk_ms:.3g}", tables.rate(row.gflops), tables.rate(row.gb_per_s)]
    ratios = {name: tables.ratio(value) for name, value in row.ratios.items()}
    few = [ratios["hk/bound"], row.bound] if row.case.few else ["", ""]
    against = [ratios[name] for name in (*WINS_OR_LOSES, "hk/matmul")]
    return [*rates, *against, *few, ratios["format/bf16"], tables.spread(row.spread)]


TITLE = "linear, medians; hk/fp32 and hk/bf16: torch's linear of the same shape"
TABLE = tables.Comparison(
    TITLE, HEADINGS, NARROW, names, figures, WINS_OR_LOSES, "hk/bf16", "bfloat16"
)
