"""The scenarios that stock SGLang and HK both serve, and the traffic that each is made to meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.e2e.engine import HK
from tests.e2e.prompts import MUTATIONS, Prompts, prefix_rounds
from tests.e2e.scenario import Round, Scenario

MODELS = ("tiny-64", "tiny-128", "smollm2")
STOCK = {"attention_backend": "torch_native"}


@dataclass(frozen=True)
class Case:
    """A scenario by name; its prompts are made once the checkpoint is there."""

    model: str
    dtype: str
    kind: str
    page_size: int

    def __str__(self) -> str:
        return f"{self.model}-{self.dtype}-{self.kind}-page{self.page_size}"

    def healthy(self) -> Case:
        """The same without faults."""
        return replace(self, kind=self.kind.removeprefix("faults_"))

    def scenarios(self, checkpoint: Callable[[str], str], folder: Path) -> list[Scenario]:
        """Without HK and with it. Faults are in HK: without it they are the healthy case."""
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
        engine = {"page_size": self.page_size, **engine}
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


WHOLE = {"disable_radix_cache": True}
CHUNKED = {
    "chunked_prefill_size": 128,
    "max_running_requests": 4,
    "enable_mixed_chunk": True,
    "disable_radix_cache": True,
}
"""Prompts are cut into pieces of at most 128 tokens that share steps with decodes."""


def whole(prompts: Prompts) -> Traffic:
    """Fresh prefills only: every prompt in one piece, several in one step."""
    return by_environment(WHOLE, [Round(prompts.of(prompts.lengths()))])


def chunked(prompts: Prompts) -> Traffic:
    """Chunked prefill: extends beside fresh rows; then, without log-probabilities, decodes too."""
    asked = prompts.of(prompts.lengths())
    rounds = [Round(asked), Round(asked, max_tokens=12, tokens_only=True)]
    return by_environment(CHUNKED, rounds)


def prefix(prompts: Prompts) -> Traffic:
    """A second round that finds its prefix in the radix cache."""
    return by_environment({}, prefix_rounds(prompts))


def retracted(prompts: Prompts) -> Traffic:
    """A cache too small for its requests: some are thrown out and computed again."""
    engine = {"max_total_tokens": 320, "max_running_requests": 4, "schedule_conservativeness": 0.01}
    rounds = [Round(prompts.of([61, 45, 64, 50]), max_tokens=60, teacher_forced=False)]
    return by_environment(engine, rounds)


def flag(prompts: Prompts) -> Traffic:
    """`--attention-backend hk`, and nothing in the environment."""
    return replace(chunked(prompts), flags={"attention_backend": "hk"}, environment={})


def prefill_flag(prompts: Prompts) -> Traffic:
    """HK for prefill beside another backend for decode."""
    flags = {"prefill_attention_backend": "hk", "decode_attention_backend": "torch_native"}
    return replace(chunked(prompts), flags=flags, environment={})


def decode_flag(prompts: Prompts) -> Traffic:
    """HK beside another backend for prefill: nothing is left for it to compute."""
    flags = {"prefill_attention_backend": "torch_native", "decode_attention_backend": "hk"}
    return replace(chunked(prompts), flags=flags, environment={})


def faults_whole(prompts: Prompts) -> Traffic:
    """Fresh prefills, once with every fault that they can have."""
    [healthy] = whole(prompts).rounds
    rounds = [Round(healthy.prompts, mutation=fault) for fault in MUTATIONS[:-1]]
    return by_environment(WHOLE, rounds)


def faults_chunked(prompts: Prompts) -> Traffic:
    """Chunked prefill, once with every fault."""
    healthy, _ = chunked(prompts).rounds
    return by_environment(CHUNKED, [Round(healthy.prompts, mutation=fault) for fault in MUTATIONS])


def faults_prefix(prompts: Prompts) -> Traffic:
    """The cached prefix ignored where the radix cache, not chunking, has put it there."""
    return by_environment({}, prefix_rounds(prompts, "ignored_prefix"))


TRAFFIC = {
    traffic.__name__: traffic
    for traffic in (
        whole,
        chunked,
        prefix,
        retracted,
        flag,
        prefill_flag,
        decode_flag,
        faults_whole,
        faults_chunked,
        faults_prefix,
    )
}

FLOAT32 = [
    Case("tiny-64", "float32", "whole", 1),
    Case("tiny-128", "float32", "whole", 16),
    Case("smollm2", "float32", "whole", 64),
    Case("tiny-64", "float32", "chunked", 64),
    Case("tiny-128", "float32", "chunked", 1),
    Case("smollm2", "float32", "chunked", 16),
    Case("tiny-64", "float32", "prefix", 16),
    Case("tiny-128", "float32", "prefix", 64),
    Case("smollm2", "float32", "prefix", 1),
    Case("tiny-64", "float32", "retracted", 1),
    Case("tiny-128", "float32", "retracted", 16),
    Case("tiny-64", "float32", "flag", 16),
    Case("tiny-64", "float32", "prefill_flag", 1),
]
HALF = [
    Case("tiny-64", "bfloat16", "chunked", 1),
    Case("tiny-128", "bfloat16", "chunked", 64),
    Case("smollm2", "bfloat16", "chunked", 16),
    Case("tiny-64", "bfloat16", "prefix", 64),
    Case("tiny-128", "float16", "chunked", 16),
]
FAULTY = [
    Case("tiny-64", "float32", "faults_whole", 1),
    Case("tiny-128", "float32", "faults_chunked", 1),
    Case("smollm2", "float32", "faults_chunked", 16),
    Case("tiny-64", "float32", "faults_prefix", 16),
    Case("tiny-64", "bfloat16", "faults_chunked", 1),
]
