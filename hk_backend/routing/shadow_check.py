"""HK_CHECK: runs the reference for a share of the calls, on the same inputs.

The error of a call is the largest, over tokens and heads, of `|out - reference| / |reference|`.
Norms are Euclidean, over the channels of a head; a linear layer's output is one head. A head with a
reference of almost zero is measured against the largest head instead, so that rounding noise is not
blown up.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from hk_backend import reference
from hk_backend.routing.metrics import count_check, count_unchecked
from hk_backend.routing.routes import routes
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.verdict import SERVED, Verdict, refused

logger = logging.getLogger(__name__)

SCORES_AT_ONCE = 1 << 22
"""Most query-key-head triples that the reference computes at once, to bound its memory."""
SMALLEST_NORM = 1e-3
"""Share of the call's largest norm below which a norm is not divided by."""


def tolerance(dtype: torch.dtype) -> float:
    """The largest error that rounding explains.

    `1.5 eps` covers half an eps for rounding the output, as much again for probabilities that a
    kernel may hold in `dtype`, and a margin. `2**-12` covers float32 sums and exponentials of large
    scores. A result scaled by 1.02 (error 0.02) exceeds it in every dtype.
    """
    return 1.5 * torch.finfo(dtype).eps + 2.0**-12


class ShadowCheck:
    """Checks calls of one route against the reference.

    Args:
        route: route whose counters keep the largest error.
        share: share of the calls that are checked, 0 to 1. They are drawn at random with a fixed
            seed, as every n-th call would always be of the same layer.

    Attributes:
        on: whether any call is checked.
    """

    def __init__(self, route: str, share: float) -> None:
        self._route = route
        self._share = share
        self.on = share > 0
        self._random = random.Random(0)

    def due(self, is_capturing: Callable[[], bool]) -> bool:
        """Whether to check this call.

        Args:
            is_capturing: tells whether a graph is being captured; only asked if calls are checked.
                Such a call has computed nothing yet, and reading from the device would end the
                capture. It is counted as a call that could not be seen.
        """
        if not self.on:
            return False
        if is_capturing():
            self._say_that_it_cannot_see()
            return False
        return self._random.random() < self._share

    def _say_that_it_cannot_see(self) -> None:
        if not routes.counters(self._route).unchecked_calls:
            logger.warning(
                "hk_backend: HK_CHECK cannot compare what route %s computes in graphs: a capture "
                "runs nothing, and a replay does not call HK; start the engine without graphs",
                self._route,
            )
        count_unchecked(self._route)

    def attention(self, of: AttentionArguments) -> Verdict:
        """Compares what a causal call wrote into `out` with the reference.

        Returns:
            a refusal, with the error and the request's shapes, if the error exceeds the tolerance.
        """
        with torch.device(of.query.device):
            error = max((largest_error(*pair) for pair in _pieces(of)), default=0.0)
        verdict = self._verdict(error, of.query.dtype)
        return verdict or refused(f"{verdict.why} at {describe(of)}")

    def linear(self, out: torch.Tensor, expected: torch.Tensor, layer: str) -> Verdict:
        """Compares the output of a linear layer, `[..., N]`, with the reference in float64.

        Returns:
            a refusal, with the error and the name of the `layer`, if the error exceeds the
            tolerance.
        """
        verdict = self._verdict(largest_error(out, expected), out.dtype)
        return verdict or refused(f"{verdict.why} at {layer}, {out.shape[:-1].numel()} rows")

    def _verdict(self, error: float, dtype: torch.dtype) -> Verdict:
        count_check(self._route, error)
        limit = tolerance(dtype)
        if error <= limit:
            return SERVED
        return refused(f"HK_CHECK: error {error:.2e} exceeds the tolerance {limit:.2e}")


def describe(of: AttentionArguments) -> str:
    """The shapes of a request, for a log line."""
    query, cache = of.query, of.paged_kv
    query_lens = of.query_start_loc.diff().tolist()
    if cache is None:
        kv_heads, keys, source = of.stored()[0].shape[1], query_lens, "packed keys"
    else:
        assert of.seq_lens is not None
        kv_heads, keys = cache.num_kv_heads, of.seq_lens.tolist()
        source = f"a cache with blocks of {cache.block_size}"
    return (
        f"query lengths {query_lens}, sequence lengths {keys}, {query.shape[1]} heads, {kv_heads} "
        f"KV heads, head size {query.shape[2]}, {query.dtype}, {source}"
    )


def _pieces(of: AttentionArguments) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields `(out, reference)` of a few query rows at a time.

    Causal rows do not see keys behind them, so the first rows of a request are a request of their
    own, with fewer keys.
    """
    starts = of.query_start_loc.tolist()
    for request, (first, last) in enumerate(pairwise(starts)):
        length = last - first if of.seq_lens is None else int(of.seq_lens[request])
        cached = length - (last - first)
        step = max(1, SCORES_AT_ONCE // max(1, of.query.shape[1] * length))
        for begin in range(first, last, step):
            end = min(begin + step, last)
            piece = replace(
                of,
                query=of.query[begin:end],
                query_start_loc=torch.tensor([0, end - begin]),
                **_keys(of, request, first, cached + end - first),
            )
            yield of.out[begin:end], reference.attention_prefill(piece)[0]


def _keys(of: AttentionArguments, request: int, first: int, seen: int) -> dict[str, Any]:
    """Arguments with the first `seen` keys of one request."""
    if of.block_table is not None:
        row = of.block_table[request : request + 1]
        return {"block_table": row, "seq_lens": torch.tensor([seen])}
    key, value = (stored[first : first + seen] for stored in of.stored())
    return {"key": key, "value": value, "key_start_loc": torch.tensor([0, seen])}


def largest_error(out: torch.Tensor, expected: torch.Tensor) -> float:
    """Error of a call, as the head of this file defines it; infinite if only one side is NaN."""
    actual = out.to(expected.dtype)
    # past the dtype's largest number, infinity is the right answer
    largest = torch.finfo(out.dtype).max * (1 - torch.finfo(out.dtype).eps)
    overflown = actual.isinf() & (expected * actual.sign() > largest)
    actual, expected = actual.masked_fill(overflown, 0.0), expected.masked_fill(overflown, 0.0)
    if not torch.equal(actual.isnan(), expected.isnan()):
        return math.inf
    difference = (actual - expected).nan_to_num(nan=0.0).norm(dim=-1)
    norms = expected.nan_to_num(nan=0.0).norm(dim=-1)
    if not norms.numel():
        return 0.0
    floor = norms.max() * SMALLEST_NORM
    scale = norms.clamp(min=max(float(floor), torch.finfo(torch.float32).tiny))
    error = float((difference / scale).max())
    return math.inf if math.isnan(error) else error
