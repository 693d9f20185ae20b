"""Decides who computes the decode rows of a step: HK where it is measured to be faster."""

from __future__ import annotations

from collections.abc import Iterable

from hk_backend.engine.attention import DECODE
from hk_backend.engine.evidence import Decision
from hk_backend.routing.routes import routes

LENGTHS = (512, 4096)
"""Keys of each request of a contest, as far as a model takes them."""
REQUESTS = (1, 8, 32)
"""Requests of a contest's batches, as far as an engine takes them."""
CACHE_BYTES = 256 << 20
"""Most bytes of the caches of a contest, which is held while a model is loaded."""


class DecodeRows:
    """Decode rows of layers that share one plan of a step.

    Args:
        decisions: the answers for all kinds of these layers, by number of requests.
        most_tokens: most query tokens of a row that HK's decode takes in each of the layers.
    """

    def __init__(self, decisions: Iterable[Decision], most_tokens: int) -> None:
        self._decisions = tuple({each.kind: each for each in decisions}.values())
        self._most_tokens = most_tokens

    def why_not(self, requests: int, max_query_len: int) -> str:
        """Reason why the parent computes `requests` rows; empty if HK does.

        Args:
            max_query_len: most query tokens of a row.
        """
        if routes.is_disabled(DECODE):
            return routes.verdict(DECODE).why
        if max_query_len > self._most_tokens:
            return f"decode rows of {max_query_len} tokens, expected at most {self._most_tokens}"
        return next((why for each in self._decisions if (why := each.why_not(requests))), "")


def batches(
    longest: int, most_requests: int, bytes_of_token: int
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Batches to measure decode with: each length, and the numbers of requests of that length.

    Args:
        longest: most keys of a request.
        most_requests: most requests of a step.
        bytes_of_token: bytes of one key and one value in a layer's cache.
    """
    lengths = tuple(keys for keys in LENGTHS if keys <= longest) or (longest,)
    found = []
    for keys in lengths:
        most = min(most_requests, CACHE_BYTES // (keys * bytes_of_token))
        found.append((keys, tuple(each for each in REQUESTS if each <= most) or (1,)))
    return tuple(found)
