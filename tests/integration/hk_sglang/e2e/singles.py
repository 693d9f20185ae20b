"""Engines of which there is one: processes, caches and environments that HK must work in, or must
step aside in. A test names those that it reads: `@pytest.mark.engine("hnd")`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from typing import Any

from tests.integration.hk_sglang.e2e.catalogue import CHUNKED
from tests.integration.shared.e2e.engine import HK, Checkpoint
from tests.integration.shared.e2e.prompts import SMALL, Prompts, long_rounds
from tests.integration.shared.e2e.refusals import REFUSALS
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.models import random_prompts

RADIX = {**CHUNKED, "disable_radix_cache": False}
TWO_RANKS = {"TEST_SPAWN": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
CACHE = tempfile.TemporaryDirectory(prefix="hk-measurements-")
"""Empty when the session begins."""
MEASURED = {"HK_EVIDENCE": "measure", "HK_CACHE_DIR": CACHE.name}
"""This machine's times decide who computes a layer."""


@dataclass(frozen=True)
class Single:
    """`long`: chunks, a cached prefix and, with HK, a fault; else one small round for each of
    `mutations`.

    `decodes`: more than the token that a prefill ends with.
    """

    environment: dict[str, str]
    engine: dict[str, Any] = field(default_factory=dict)
    sabotage: str = ""
    mutations: tuple[str, ...] = ("",)
    dtype: str = "float32"
    long: bool = False
    decodes: bool = True

    def scenario(self, name: str, checkpoint: Checkpoint) -> Scenario:
        model = checkpoint("tiny-64")
        if self.long:
            rounds, shared = long_rounds(Prompts("tiny-64", model)), RADIX
        else:
            prompts, shared = random_prompts(SMALL, seed=9), CHUNKED
            rounds = [Round(prompts, max_tokens=4, mutation=fault) for fault in self.mutations]
        if not self.decodes:
            rounds = [replace(item, max_tokens=1) for item in rounds]
        if "HK_BACKEND" not in self.environment:
            rounds = [replace(item, mutation="") for item in rounds]
        engine = {**shared, **self.engine}
        return Scenario(name, model, rounds, self.dtype, engine, self.sabotage, self.environment)


SINGLES = {
    # stock, three ways to be it
    "without-plugin": Single({"SGLANG_PLUGINS": "none"}),
    "backend-unset": Single({}),
    "backend-0": Single({"HK_BACKEND": "0", "HK_DEVICE": "nonsense", "HK_CHECK": "1"}),
    # HK where it must work
    "measured-ranks": Single(HK | MEASURED | TWO_RANKS, {"tp_size": 2}),
    "tensor-parallel": Single(HK | TWO_RANKS, {"tp_size": 2}, long=True),
    "hnd": Single(  # SGLang's plain attention cannot read it, so there is nothing to decode with
        HK | {"SGLANG_USE_HND_KVCACHE": "1"}, {"page_size": 16}, long=True, decodes=False
    ),
    # machine code of MI355X, executed by the emulator; short, for it is slow
    "emulated": Single(HK | {"HK_DEVICE": "emulated:gfx950"}, {"page_size": 64}, dtype="bfloat16"),
    "emulated-graphs": Single(
        HK | {"HK_DEVICE": "emulated:gfx950"},
        {"page_size": 64},
        dtype="bfloat16",
        sabotage="linear_in_graphs",
    ),
    "emulated-cpu": Single(HK, {"page_size": 64}, dtype="bfloat16"),
    # HK that must step aside
    "decode-flag": Single(
        {}, {"prefill_attention_backend": "torch_native", "decode_attention_backend": "hk"}
    ),
    "other-flag": Single(HK, {"attention_backend": "torch_native"}),
    **{name: Single(each.environment, sabotage=each.sabotage) for name, each in REFUSALS.items()},
    "engine-unknown": Single(HK, sabotage="engine_outside_contract"),
    "strict": Single(HK | {"HK_STRICT": "1"}, sabotage="extension_missing"),
    "strict-bad-backend": Single({"HK_BACKEND": "atention", "HK_STRICT": "1"}),
    "checked": Single(HK | {"HK_CHECK": "1"}, mutations=("", "scaled_output", "")),
}
for dtype in ("fp8_e4m3", "fp8_e5m2"):
    for side, environment in (("hk", HK), ("stock", {})):
        SINGLES[f"{dtype}-{side}"] = Single(environment, {"kv_cache_dtype": dtype}, long=True)
