"""Ways to start SGLang on ROCm: the rows of its table of defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.integration.shared.attention.rows import DRAFTS
from tests.integration.shared.defaults.cells import cells
from tests.integration.shared.defaults.traffic import E5M2, FP8, Traffic

VECTORISED = {"SGLANG_AITER_KV_CACHE_LAYOUT": "vectorized_5d"}


@dataclass(frozen=True)
class Setting:
    """One way to start a server. `environment`, `arguments`: the server's own.

    `aiter`: SGLANG_USE_AITER, which SGLang reads when it is imported. SGLang's images for ROCm set
    it.
    """

    backend: str
    page_size: int
    aiter: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)


SETTINGS = {
    "no flag": Setting("aiter", 1),
    "`SGLANG_USE_AITER=1`": Setting("aiter", 1, aiter=True),
    "the same with `SGLANG_AITER_KV_CACHE_LAYOUT=vectorized_5d`": Setting(
        "aiter", 64, aiter=True, environment=VECTORISED
    ),
    "`--attention-backend triton --prefill-attention-backend hk`": Setting(
        "triton",
        1,
        arguments={"attention_backend": "triton", "prefill_attention_backend": "hk"},
    ),
}
"""SGLang chooses `aiter` for each of these models, whether AITER's other kernels are used or not.
`triton` is the user's choice."""
ASKED_FOR = {FP8: "fp8_e4m3", E5M2: "fp8_e5m2"}
"""Values of `--kv-cache-dtype`. On ROCm SGLang makes e4m3 of both."""
MATRIX = cells(list(SETTINGS))


def arguments_of(setting: Setting, traffic: Traffic) -> dict[str, Any]:
    """Arguments with which a server is started for this traffic."""
    found = dict(setting.arguments)
    if traffic.name == "mixed batches":
        found["enable_mixed_chunk"] = True
    if traffic.cache in ASKED_FOR:
        found["kv_cache_dtype"] = ASKED_FOR[traffic.cache]
    if traffic.drafts:
        found |= {
            "speculative_algorithm": "NGRAM",
            "speculative_num_draft_tokens": 1 + DRAFTS,
            "speculative_ngram_max_bfs_breadth": 1,  # chains: trees want pages of one token
        }
    return found
