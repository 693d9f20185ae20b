"""The scenarios that stock SGLang and HK both serve, and the traffic that each is made to meet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.integration.shared.e2e import case as shared
from tests.integration.shared.e2e.engine import HK, Checkpoint
from tests.integration.shared.e2e.prompts import MUTATIONS, Prompts, prefix_rounds
from tests.integration.shared.e2e.scenario import Round, Scenario

STOCK = {"attention_backend": "torch_native"}
FLAGS = ("flag", "prefill_flag")
"""Kinds that ask for HK by SGLang's own flags."""


class Case(shared.Case):
    block = "page"

    def healthy(self) -> Case:
        """The same traffic without faults and without flags."""
        return replace(self, kind="chunked") if self.kind in FLAGS else super().healthy()

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        """With HK and without it: faults and flags are HK's."""
        model = checkpoint(self.model)
        return [self.hk(model), self.healthy().stock(model)]

    def stock(self, checkpoint: str) -> Scenario:
        """SGLang's own plain attention."""
        traffic = TRAFFIC[self.kind](Prompts(self.model, checkpoint))
        return self._scenario("stock", checkpoint, traffic.rounds, traffic.engine | STOCK, {})

    def hk(self, checkpoint: str) -> Scenario:
        traffic = TRAFFIC[self.kind](Prompts(self.model, checkpoint))
        engine = traffic.engine | traffic.flags
        return self._scenario("hk", checkpoint, traffic.rounds, engine, traffic.environment)

    def _scenario(
        self,
        side: str,
        checkpoint: str,
        rounds: list[Round],
        engine: dict[str, Any],
        environment: dict[str, str],
    ) -> Scenario:
        engine = {"page_size": self.block_size, **engine}
        name = f"{side}-{self}"
        return Scenario(name, checkpoint, rounds, self.dtype, engine, environment=environment)


@dataclass(frozen=True)
class Traffic:
    """`flags`, `environment`: how HK is asked for, beyond the engine arguments of both sides."""

    engine: dict[str, Any]
    rounds: list[Round]
    flags: dict[str, Any]
    environment: dict[str, str]


def by_environment(engine: dict[str, Any], rounds: list[Round]) -> Traffic:
    """HK_BACKEND=1 and no flag."""
    return Traffic(engine, rounds, {}, HK)


CHUNKED = {
    "chunked_prefill_size": 128,
    "max_running_requests": 4,
    "enable_mixed_chunk": True,
    "disable_radix_cache": True,
}
"""Prompts are cut into pieces of at most 128 tokens that share steps with decodes."""
INTERPRETED = {"TRITON_INTERPRET": "1"}
"""What a fork needs that imports SGLang's Triton kernels: those of its backends for ROCm."""


def whole(prompts: Prompts) -> Traffic:
    """Fresh prefills, every prompt in one piece, several in one step; then a round that finds its
    prefix in the radix cache."""
    return by_environment({}, [Round(prompts.of(prompts.lengths())), *prefix_rounds(prompts)])


def chunked(prompts: Prompts) -> Traffic:
    """Chunked prefill: extends beside fresh rows; then, without log-probabilities, decodes too."""
    asked = prompts.of(prompts.lengths())
    rounds = [Round(asked), Round(asked, max_tokens=12, tokens_only=True)]
    return by_environment(CHUNKED, rounds)


def retracted(prompts: Prompts) -> Traffic:
    """A cache too small for its requests: some are thrown out and computed again.

    SGLang takes no request that does not fit beside those that it takes in the same step, and
    counts less for those that run already (if they may stop early): so they begin one by one.
    """
    engine = {"max_total_tokens": 320, "max_running_requests": 4, "chunked_prefill_size": 64}
    asked = prompts.of([61, 45, 64, 50])
    rounds = [Round(asked, max_tokens=60, teacher_forced=False, ignore_eos=False)]
    return by_environment({**engine, "schedule_conservativeness": 0.01}, rounds)


def flag(prompts: Prompts) -> Traffic:
    """`--attention-backend hk`, and nothing in the environment."""
    return replace(chunked(prompts), flags={"attention_backend": "hk"}, environment={})


def prefill_flag(prompts: Prompts) -> Traffic:
    """HK for prefill beside another backend for decode."""
    flags = {"prefill_attention_backend": "hk", "decode_attention_backend": "torch_native"}
    return replace(chunked(prompts), flags=flags, environment={})


def faults_whole(prompts: Prompts) -> Traffic:
    """Fresh prefills, once with every fault that they can have, none reading what another wrote;
    then the cached prefix ignored."""
    fresh, *_ = whole(prompts).rounds
    rounds = [Round(fresh.prompts, mutation=fault) for fault in MUTATIONS[:-1]]
    return by_environment({}, rounds + prefix_rounds(prompts, MUTATIONS[-1]))


def faults_chunked(prompts: Prompts) -> Traffic:
    """Chunked prefill, once with every fault."""
    scored, _ = chunked(prompts).rounds
    return by_environment(CHUNKED, [Round(scored.prompts, mutation=fault) for fault in MUTATIONS])


TRAFFIC = {
    traffic.__name__: traffic
    for traffic in (
        whole,
        chunked,
        retracted,
        flag,
        prefill_flag,
        faults_whole,
        faults_chunked,
    )
}

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
FAULTY = [
    Case("tiny-64", "float32", "faults_whole", 16),
    Case("tiny-128", "float32", "faults_chunked", 1),
    Case("smollm2", "float32", "faults_chunked", 16),
    Case("tiny-64", "bfloat16", "faults_chunked", 1),
]
