"""How SGLang is started on ROCm: the rows of its table of defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.integration.shared.attention.rows import DRAFTS
from tests.integration.shared.defaults.cells import cells
from tests.integration.shared.defaults.traffic import FP8, Traffic

VECTORISED = {"SGLANG_AITER_KV_CACHE_LAYOUT": "vectorized_5d"}


@dataclass(frozen=True)
class Setting:
    """`environment`, `arguments`: of the server; `aiter`: SGLANG_USE_AITER, which SGLang reads when
    it is imported, and its images for ROCm set. `fp8`: how an FP8 cache is asked for; on ROCm
    SGLang makes the same of both."""

    backend: str
    page_size: int
    aiter: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fp8: str = "fp8_e4m3"


SETTINGS = {
    "no flag": Setting("aiter", 1),
    "`SGLANG_USE_AITER=1`": Setting("aiter", 1, aiter=True, fp8="fp8_e5m2"),
    "the same with `SGLANG_AITER_KV_CACHE_LAYOUT=vectorized_5d`": Setting(
        "aiter", 64, aiter=True, environment=VECTORISED
    ),
    "`--attention-backend triton --prefill-attention-backend hk`": Setting(
        "triton",
        1,
        arguments={"attention_backend": "triton", "prefill_attention_backend": "hk"},
        fp8="fp8_e5m2",
    ),
}
"""SGLang chooses `aiter` for each of these models, whether AITER's other kernels are used or not;
`triton` is the user's choice."""
MATRIX = cells(list(SETTINGS))


def arguments_of(setting: Setting, traffic: Traffic) -> dict[str, Any]:
    """What a server is started with."""
    found = dict(setting.arguments)
    if traffic.name == "mixed batches":
        found["enable_mixed_chunk"] = True
    if traffic.cache == FP8:
        found["kv_cache_dtype"] = setting.fp8
    if traffic.drafts:
        found |= {
            "speculative_algorithm": "NGRAM",
            "speculative_num_draft_tokens": 1 + DRAFTS,
            "speculative_ngram_max_bfs_breadth": 1,  # chains: trees want pages of one token
        }
    return found
