"""The plan of `bench_serving serve`: what it measures, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_serving.candidates import Candidate
from bench_serving.engines import Engine
from hk_backend.lab.bench.stopwatch import order_of_round


@dataclass(frozen=True)
class ServingPlan:
    """The servers and requests to measure, checked by the command line."""

    engine: Engine
    model: Path
    candidates: Sequence[Candidate]
    dtype: str
    input_lens: Sequence[int]
    output_len: int
    concurrencies: Sequence[int]
    prompts: int
    rounds: int
    server_arguments: Sequence[str] = ()

    @property
    def may_differ(self) -> set[str]:
        """Settings besides the backend that the candidates' names let differ between servers."""
        settings = {"dtype": "dtype", "arguments": "quantization"}
        return {
            what
            for what, name in settings.items()
            if any(getattr(each, name) for each in self.candidates if not each.is_llama_cpp)
        }

    @property
    def context(self) -> int:
        """Number of tokens of the longest request, prompt and answer together."""
        return max(self.input_lens) + self.output_len

    def seed(self, turn: int, input_len: int, concurrency: int) -> int:
        """The seed of the requests at a point, another one for every point.

        Prompts of one seed have the same beginning at any length, which a prefix cache would hold.
        """
        place = self.input_lens.index(input_len), self.concurrencies.index(concurrency)
        points = len(self.input_lens) * len(self.concurrencies)
        return turn * points + place[0] * len(self.concurrencies) + place[1]

    def points(self) -> Iterator[tuple[int, int, int, Candidate]]:
        """Yields (round, input length, concurrency, candidate) in the order of the runs."""
        for turn in range(self.rounds):
            for input_len in self.input_lens:
                for concurrency in self.concurrencies:
                    for candidate in order_of_round(self.candidates, turn):
                        yield turn, input_len, concurrency, candidate
