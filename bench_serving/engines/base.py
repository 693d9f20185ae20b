"""What differs between engines: how one is started, measured and read."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hk_backend.cli import known_engines, status

THROUGHPUT, TTFT, TPOT = "total_token_throughput", "median_ttft_ms", "median_tpot_ms"
"""What every client measures, as vLLM's calls it: tokens in and out per second; ms to the first
token; ms for each other one."""


@dataclass(frozen=True)
class Load:
    """One run of an engine's benchmark client.

    Args:
        url: the server's.
        name: what the model is called in requests.
        tokenizer: folder of the checkpoint.
        input_len, output_len: tokens of each prompt and of each answer.
        prompts: requests of the run, no two alike.
        concurrency: the maximum number in flight at once.
        seed: decides the prompts.
        result: file that the client writes.
    """

    url: str
    name: str
    tokenizer: Path
    input_len: int
    output_len: int
    prompts: int
    concurrency: int
    seed: int
    result: Path


class Program(ABC):
    """What serves a checkpoint through the OpenAI API; without state.

    `title`: as its makers write it. `server`: the module that is its server.
    """

    server: str

    @property
    @abstractmethod
    def title(self) -> str: ...

    @abstractmethod
    def server_arguments(self, model: Path, name: str, dtype: str) -> list[str]:
        """Serve `model` as `name`, with counters on `/metrics`."""

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Variables that its server needs on this machine, unless they are set."""

    @abstractmethod
    def cores(self, log: str) -> str:
        """The cores that a server bound its compute threads to, by its log; empty if to none."""


class Engine(Program):
    """One that HK has a plugin for.

    `name`: as `--engine` takes it, a key of `known_engines.ENGINES`. `client`: the module that is
    its own benchmark client. `measures_others`: whether that needs only the OpenAI API. `demo`:
    what the demo's results are called. `demo_arguments`: of the demo's servers.
    """

    name: str
    client: str
    measures_others: bool
    demo: str
    demo_arguments: Sequence[str]

    @property
    def title(self) -> str:
        return known_engines.ENGINES[self.name].title

    @property
    def version(self) -> str | None:
        """The installed one's; None: it is not installed."""
        return known_engines.ENGINES[self.name].version

    @abstractmethod
    def client_arguments(self, load: Load) -> list[str]:
        """The client's command line for `load`."""

    @abstractmethod
    def read_result(self, file: Path) -> dict[str, Any]:
        """What the client wrote: `completed`, the number of answered requests, and measurements,
        among them `THROUGHPUT`, `TTFT` and `TPOT`.

        Raises:
            OSError, ValueError: there is none, or it is damaged.
        """

    @abstractmethod
    def token_ids(self, reply: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token ids of prompt and answer in a chat completion with `return_token_ids`."""


def options(settings: Mapping[str, object]) -> list[str]:
    """`{"seed": 1}` as `["--seed", "1"]`."""
    return [part for name, value in settings.items() for part in (f"--{name}", str(value))]


def on_gpu() -> bool:
    """Whether an engine would serve on a GPU here."""
    return status.tensor_device() != "cpu"


def core_list() -> str:
    """The cores that this process may run on, as `0,1`."""
    return ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
