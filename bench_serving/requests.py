"""Requests to a server: answers, teacher-forced log-probabilities, times of prefill and decode."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from openai import OpenAI, OpenAIError

from bench_serving.engines import Engine
from bench_serving.server import Server, ServerError, tail

REQUEST_SECONDS = 900


@dataclass(frozen=True)
class Answer:
    """A greedy answer, with the token ids of prompt and answer."""

    question: str
    text: str
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]


class Client:
    """An OpenAI client of one server of `engine`."""

    def __init__(self, server: Server, engine: Engine) -> None:
        self._server = server
        self._engine = engine
        self._model = server.name
        # no retries: a failed request is a failure, and a repeated one would be timed wrongly
        self._api = OpenAI(
            base_url=f"{server.url}/v1", api_key="none", timeout=REQUEST_SECONDS, max_retries=0
        )

    def chat(self, question: str, max_tokens: int) -> Answer:
        """Ask `question` and decode greedily."""
        with self._explained():
            reply: Any = self._api.chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": question}],
                max_tokens=max_tokens,
                temperature=0.0,
                extra_body={"return_token_ids": True},
            )
        text = (reply.choices[0].message.content or "").strip()
        return Answer(question, text, *self._engine.token_ids(reply))

    def logprobs(self, tokens: Sequence[int]) -> list[float]:
        """Log-probability of each token but the first, given those before it, from one prefill."""
        with self._explained():
            reply: Any = self._api.completions.create(
                model=self._model,
                prompt=list(tokens),
                max_tokens=1,
                temperature=0.0,
                echo=True,
                logprobs=1,
            )
        found = reply.choices[0].logprobs.token_logprobs
        if len(found) != len(tokens) + 1:  # the last one is that of the generated token
            raise ServerError(f"{len(found)} log-probabilities for {len(tokens)} tokens and one")
        # in JSON, null stands for NaN
        return [math.nan if value is None else float(value) for value in found[1:-1]]

    def times(self, tokens: Sequence[int], decoded: int) -> tuple[float, float]:
        """Seconds of one streamed request for `tokens` and `decoded` tokens after the first.

        Returns:
            seconds from sending the prompt to the first token, and for each token after it.
        """
        arrived = []
        with self._explained():
            start = time.perf_counter()
            stream: Any = self._api.completions.create(
                model=self._model,
                prompt=list(tokens),
                max_tokens=1 + decoded,
                temperature=0.0,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            with stream:
                arrived = [time.perf_counter() for chunk in stream if chunk.choices]
        if len(arrived) < 2:
            log = tail(self._server.log)
            raise ServerError(
                f"the server streamed {len(arrived)} times, not token by token:\n{log}"
            )
        return arrived[0] - start, (arrived[-1] - arrived[0]) / decoded

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn a failed request into a ServerError with the end of the server's log."""
        try:
            yield
        except OpenAIError as error:
            raise ServerError(f"a request failed: {error}\n{tail(self._server.log)}") from error
