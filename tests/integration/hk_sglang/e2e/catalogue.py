"""The engines by name: those that serve a kind of traffic, and those of which there is one. A test
names those that it reads: `@pytest.mark.engine("hnd")`."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.integration.shared.e2e import case as shared
from tests.integration.shared.e2e import singles
from tests.integration.shared.e2e.engine import HK, Checkpoint
from tests.integration.shared.e2e.prompts import Prompts, prefix_rounds
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.integration.shared.e2e.singles import Single

STOCK = {"attention_backend": "torch_native"}
CHUNKED = {
    "chunked_prefill_size": 128,
    "max_running_requests": 4,
    "enable_mixed_chunk": True,
    "disable_radix_cache": True,
}
"""Prompts are cut into pieces of at most 128 tokens that share steps with decodes."""
RADIX = {**CHUNKED, "disable_radix_cache": False}
INTERPRETED = {"TRITON_INTERPRET": "1"}
"""What a fork needs that imports SGLang's Triton kernels: those of its backends for ROCm."""
FLAGS = {
    "flag": {"attention_backend": "hk"},
    "prefill_flag": {"prefill_attention_backend": "hk", "decode_attention_backend": "torch_native"},
}
"""Kinds that ask for HK by SGLang's own flags, and by nothing in the environment."""


def traffic(kind: str, prompts: Prompts) -> tuple[dict[str, Any], list[Round]]:
    """The engine's arguments and its rounds."""
    if kind == "retracted":
        # A cache too small: some requests are thrown out and computed again. SGLang takes none that
        # does not fit beside those of the same step, and counts less for those that run already (if
        # they may stop early): so they begin one by one.
        engine = {"max_total_tokens": 320, "max_running_requests": 4, "chunked_prefill_size": 64}
        asked = prompts.of([61, 45, 64, 50])
        rounds = [Round(asked, max_tokens=60, teacher_forced=False, ignore_eos=False)]
        return {**engine, "schedule_conservativeness": 0.01}, rounds
    asked = prompts.of(prompts.lengths())
    if kind == "whole":  # every prompt in one piece; then prefixes that the radix cache has
        return {}, [Round(asked), *prefix_rounds(prompts)]
    # extends beside fresh rows; then, without log-probabilities, decodes too
    return CHUNKED, [Round(asked), Round(asked, max_tokens=12, tokens_only=True)]


class Case(shared.Case):
    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        """With HK and, in half precision, by SGLang's own plain attention."""
        model = checkpoint(self.model)
        engine, rounds = traffic(self.kind, Prompts(self.model, model))
        engine = {"page_size": self.block_size, **engine}
        stock = Scenario(f"stock-{self}", model, rounds, self.dtype, engine | STOCK)
        flags, environment = FLAGS.get(self.kind, {}), {} if self.kind in FLAGS else HK
        hk = replace(stock, name=f"hk-{self}", engine=engine | flags, environment=environment)
        return [hk] if self.dtype == "float32" else [hk, stock]


FLOAT32 = [
    Case("tiny-64", "float32", "whole", 16),
    Case("tiny-128", "float32", "whole", 64),
    Case("smollm2", "float32", "whole", 1),
    Case("tiny-64", "float32", "chunked", 64),
    Case("tiny-128", "float32", "chunked", 1),
    Case("smollm2", "float32", "chunked", 16),
    Case("tiny-64", "float32", "retracted", 1),
    Case("tiny-64", "float32", "flag", 64),
    Case("tiny-128", "float32", "prefill_flag", 1),
]
HALF = [
    Case("tiny-64", "bfloat16", "chunked", 1),
    Case("tiny-128", "bfloat16", "whole", 64),
    Case("smollm2", "bfloat16", "chunked", 16),
    Case("tiny-128", "float16", "chunked", 16),
]

CACHE = tempfile.TemporaryDirectory(prefix="hk-measurements-")
"""Empty when the session begins."""
MEASURED = {"HK_EVIDENCE": "measure", "HK_CACHE_DIR": CACHE.name}
"""This machine's times decide who computes a layer."""
TWO_RANKS = {"TEST_SPAWN": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
RANKS = HK | TWO_RANKS
DECODE_FLAG = {"prefill_attention_backend": "torch_native", "decode_attention_backend": "hk"}
SINGLES = singles.SINGLES | {
    "without-plugin": Single({"SGLANG_PLUGINS": "none"}),
    "measured-ranks": Single(RANKS | MEASURED, {"tp_size": 2}),
    "tensor-parallel": Single(RANKS, {"tp_size": 2}, long=True),
    "hnd": Single(  # SGLang's plain attention cannot read it, so there is nothing to decode with
        HK | {"SGLANG_USE_HND_KVCACHE": "1"}, {"page_size": 16}, long=True, decodes=False
    ),
    # HK that must step aside
    "decode-flag": Single({}, DECODE_FLAG),
    "other-flag": Single(HK, STOCK),
    "strict-bad-backend": Single({"HK_BACKEND": "atention", "HK_STRICT": "1"}),
    **{
        f"{dtype}-{side}": Single(environment, {"kv_cache_dtype": dtype}, long=True)
        for dtype in ("fp8_e4m3", "fp8_e5m2")
        for side, environment in (("hk", HK), ("stock", {}))
    },
}


def single(name: str, checkpoint: Checkpoint) -> Scenario:
    of = SINGLES[name]
    return of.asked(name, checkpoint("tiny-64"), RADIX if of.long else CHUNKED)
