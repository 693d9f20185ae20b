"""Decides by measurements who computes a kind of attention, HK or its parent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from hk_backend.devices import device_for
from hk_backend.engine.attention import DECODE, ROUTE
from hk_backend.engine.decode_rows import REQUESTS, batches
from hk_backend.engine.evidence import Contest, Decision, Kind, Unserved, decide
from hk_backend.ops import AttentionRequest, DecodeRequest
from hk_sglang.attention.contest import (
    REQUEST,
    Attention,
    decode_contest,
    places_of,
    prefill_contest,
)
from hk_sglang.ranks import tensor_parallel


class Evidence:
    """Decides whether HK or the parent `backend` computes each kind of a model's attention layers.

    Attributes:
        slower: reason why the parent is faster for the current batch, by the `id` of a decision.

    Args:
        name: SGLang's name of the backend.
        runner: the runner of the backend.
    """

    def __init__(self, name: str, runner: Any) -> None:
        self._name, self._runner = name, runner
        self._decisions: dict[Kind, Decision] = {}
        self._decode_decisions: dict[Kind, Decision] = {}
        self._contestants: tuple[Attention, Any] | None = None
        self.slower: dict[int, str] = {}

    @contextmanager
    def loading(self, hk: Attention, backend: Any) -> Iterator[None]:
        """Context for the decisions on the model's layers; only these layers may be measured.

        SGLang replaces the backend of a draft model, whose workspace must then go. So neither
        contestant is kept.

        Args:
            hk: HK's part of the backend.
            backend: the parent, not wrapped yet.
        """
        self._contestants = hk, backend
        try:
            with borrowed(self._runner):
                yield
        finally:
            self._contestants = None

    def decision_on(self, layer: Any, request: AttentionRequest) -> Decision:
        """The decision on `layer`, shared by all layers of its kind."""
        kind = kind_of(request, self._runner.token_to_kv_pool, self._name)
        if kind not in self._decisions:
            contest = partial(self._contest, layer, request)
            self._decisions[kind] = decide(kind, contest, tensor_parallel())
        return self._decisions[kind]

    def decode_decisions(
        self, layer: Any, request: DecodeRequest, refusal: str
    ) -> tuple[Decision, ...]:
        """The decisions on the decode of `layer`, for each length of requests.

        Args:
            refusal: reason why HK cannot compute it on this rank; empty if it can.
        """
        pool, found = self._runner.token_to_kv_pool, []
        for keys, requests in self._decode_batches(request):
            timed = replace(request, keys=keys)
            kind = kind_of(timed, pool, self._name)
            if kind not in self._decode_decisions:
                contest = partial(self._decode_contest, layer, timed, requests, refusal)
                self._decode_decisions[kind] = decide(kind, contest, tensor_parallel())
            found.append(self._decode_decisions[kind])
        return tuple(found)

    def _decode_batches(self, request: AttentionRequest) -> Sequence[tuple[int, tuple[int, ...]]]:
        pool, tables = self._runner.token_to_kv_pool, self._runner.req_to_token_pool
        size = 2 * request.num_kv_heads * request.head_size * pool.dtype.itemsize
        places = places_of(pool)
        longest = min(places // REQUESTS[1], tables.max_context_len)
        rows = tables.req_to_token.shape[0] - REQUEST
        return [
            (keys, tuple(each for each in requests if each * keys <= places))
            for keys, requests in batches(longest, rows, size)
        ]

    def _decode_contest(
        self, layer: Any, request: DecodeRequest, requests: tuple[int, ...], refusal: str
    ) -> Contest:
        contestants = self._only_while_loading()
        if refusal:
            raise Unserved(refusal)
        return decode_contest(*contestants, self._runner, layer, request, requests)

    def why_slower(self, longest: int) -> str:
        """Sets `slower` for a batch whose longest prompt has `longest` tokens.

        Returns the reason if the parent is faster in all kinds. During a contest HK computes the
        batch.
        """
        if self._contestants is not None:
            self.slower = {}
            return ""
        whys = {id(each): each.why_not(longest) for each in self._decisions.values()}
        self.slower = {decision: why for decision, why in whys.items() if why}
        return "" if len(self.slower) < len(whys) else next(iter(whys.values()), "")

    def _contest(self, layer: Any, request: AttentionRequest) -> Contest:
        return prefill_contest(*self._only_while_loading(), self._runner, layer, request)

    def _only_while_loading(self) -> tuple[Attention, Any]:
        """The contestants (see `loading`)."""
        if self._contestants is None:
            raise RuntimeError("the model did not have the layer when it was loaded")
        return self._contestants


def kind_of(request: AttentionRequest, pool: Any, parent: str) -> Kind:
    """The kind of a layer that HK could serve.

    Args:
        pool: the runner's `token_to_kv_pool`.
        parent: SGLang's name of the backend.
    """
    keys = request.keys if isinstance(request, DecodeRequest) else 0
    heads = f"{request.num_heads}/{request.num_kv_heads} heads of {request.head_size}"
    facts = [str(request.dtype).removeprefix("torch."), heads]
    window, cap = request.sliding_window, request.logits_soft_cap
    facts.append("causal" if window is None else f"window {window}")
    facts += [f"logits capped at {cap}"] if cap else []
    facts += [f"{pool.dtype} cache".removeprefix("torch.")] if pool.dtype != request.dtype else []
    facts.append(f"pages of {pool.page_size}")
    facts += [f"{keys} keys"] if keys else []
    device = device_for(request.device_type).name
    return Kind(DECODE if keys else ROUTE, "SGLang", device, ", ".join(facts), parent)


@contextmanager
def borrowed(runner: Any) -> Iterator[None]:
    """Restores the page tables afterwards. What a contest leaves in the pool belongs to no
    request."""
    tables = runner.req_to_token_pool.req_to_token
    rows = slice(REQUEST, REQUEST + REQUESTS[-1])
    held = tables[rows].clone()
    mapping = getattr(runner.token_to_kv_pool, "full_to_swa_index_mapping", None)
    held_mapping = None if mapping is None else mapping.clone()
    try:
        yield
    finally:
        tables[rows] = held
        if mapping is not None:
            mapping.copy_(held_mapping)
