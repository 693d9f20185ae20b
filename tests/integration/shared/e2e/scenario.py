"""Questions to an engine process and its answers, as plain data that crosses in JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

Tokens = list[int]


@dataclass(frozen=True)
class Round:
    """One call of the engine's `generate`, greedy.

    `teacher_forced`: also score every prompt token (the engines then read no cached prefix).
    `tokens_only`: no log-probabilities (with them SGLang keeps decodes out of prefill batches).
    `ignore_eos`: go on after the text's end (SGLang then keeps room for all that may come).
    `mutation`: a deliberate fault in HK's work (mutations.py), for this round only.
    """

    prompts: list[Tokens]
    max_tokens: int = 6
    teacher_forced: bool = True
    tokens_only: bool = False
    ignore_eos: bool = True
    mutation: str = ""


@dataclass(frozen=True)
class Scenario:
    """One engine: the model, the arguments that the engine takes, and the rounds it serves.

    `sabotage`: something broken before the engine starts (sabotage.py). `environment`: variables of
    this engine alone, where each has a process of its own.
    """

    name: str
    model: str
    rounds: list[Round]
    dtype: str = "float32"
    engine: dict[str, Any] = field(default_factory=dict)
    sabotage: str = ""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """One prompt's answer; a log-probability is natural, of the token at its place.

    `prompt_logprobs`: of the prompt from its second token on; empty if not teacher-forced.
    """

    prompt: Tokens
    tokens: Tokens
    logprobs: list[float]
    prompt_logprobs: list[float]
    cached_tokens: int


@dataclass(frozen=True)
class Batch:
    """One step as the scheduler composed it, counted apart from anything that HK says."""

    decodes: int
    extends: int
    fresh: int
    prefill_tokens: int
    fresh_tokens: int

    @staticmethod
    def of(rows: list[tuple[int, int]]) -> Batch:
        """The batch of rows that are given as (new tokens, tokens before them)."""
        prefills = [(count, before) for count, before in rows if count > 1]
        return Batch(
            decodes=len(rows) - len(prefills),
            extends=sum(before > 0 for _, before in prefills),
            fresh=sum(before == 0 for _, before in prefills),
            prefill_tokens=sum(count for count, _ in prefills),
            fresh_tokens=sum(count for count, before in prefills if before == 0),
        )


@dataclass(frozen=True)
class Worker:
    """One worker process: its route counters so far, and the modules of HK that it has imported.

    `launches`: of GPU kernels, by name, as the emulator counted them.
    """

    routes: dict[str, Any]
    launches: dict[str, int]
    modules: list[str]
    layers: int
    mutated_calls: int


@dataclass(frozen=True)
class RoundResult:
    """The results of one round; `batches` is None where the scheduler lives in another process."""

    answers: list[Answer]
    preemptions: int
    workers: list[Worker]
    batches: list[Batch] | None


@dataclass(frozen=True)
class ScenarioResult:
    """The results of a scenario; `start`: the workers before the first round, after warm-up."""

    name: str
    start: list[Worker]
    rounds: list[RoundResult]
    error: str = ""


T = TypeVar("T")


def save(value: Any, path: Path) -> None:
    """Write a list of the dataclasses above; floats come back bit for bit."""
    path.write_text(json.dumps([asdict(item) for item in value]))


def load(kind: type[T], path: Path) -> list[T]:
    """Read what `save` wrote."""
    return TypeAdapter(list[kind]).validate_python(json.loads(path.read_text()))  # type: ignore[valid-type]
