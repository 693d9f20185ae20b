"""Measures whether HK or its parent is faster for a kind of attention, on a fresh prompt.

The prompt lies in the server's own pool and page table, which no request uses while a model is
loaded, so the parent is timed as it will serve. Both sides write the prompt's keys to the pool.
Neither makes metadata, as a step does that once for all layers. Sinks are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Protocol

import torch
from sglang.srt.model_executor.forward_batch_info import ForwardBatch

from hk_backend.devices import device_for
from hk_backend.engine.attention import ROUTE
from hk_backend.engine.evidence import Contest, Decision, Kind, decide, prompts_up_to
from hk_backend.ops import AttentionRequest
from hk_sglang.attention.batch import one_batch
from hk_sglang.limits import batch_tokens
from hk_sglang.ranks import tensor_parallel

REQUEST = 1
"""Row of the page table that the prompt uses; row 0 is that of padding."""

Prompt = tuple[ForwardBatch, torch.Tensor, torch.Tensor, torch.Tensor]
"""A batch, query `[tokens, heads * channels]`, and keys and values `[tokens, heads, channels]`."""


class Prefill(Protocol):
    """The parts of HK's backend (`prefill.HKPrefill`) that a contest needs."""

    def rehearse(self, batch: Any) -> None:
        """Makes the metadata of a batch without a request, the parent's and HK's."""

    def attend(
        self, q: Any, k: Any, v: Any, layer: Any, batch: Any, save_kv_cache: bool, extra: Any
    ) -> torch.Tensor | None: ...


class Evidence:
    """Decides whether HK or the parent `backend` computes each kind of a model's attention layers.

    Attributes:
        slower: reason why the parent is faster for the current batch, by the `id` of a decision.

    Args:
        hk: HK's part of the backend.
        backend: the parent, not wrapped yet.
        name: SGLang's name of the backend.
        runner: the runner of the backend.
    """

    def __init__(self, hk: Prefill, backend: Any, name: str, runner: Any) -> None:
        self._hk, self._backend, self._name, self._runner = hk, backend, name, runner
        self._decisions: dict[Kind, Decision] = {}
        self._loading = False
        self.slower: dict[int, str] = {}

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Context for the decisions on the model's layers; only these layers may be measured."""
        self._loading = True
        try:
            with borrowed(self._runner):
                yield
        finally:
            self._loading = False

    def decision_on(self, layer: Any, request: AttentionRequest) -> Decision:
        """The decision on `layer`, shared by all layers of its kind."""
        kind = kind_of(request, self._runner.token_to_kv_pool, self._name)
        if kind not in self._decisions:
            contest = partial(self._contest, layer, request)
            self._decisions[kind] = decide(kind, contest, tensor_parallel())
        return self._decisions[kind]

    def why_slower(self, longest: int) -> str:
        """Sets `slower` for a batch whose longest prompt has `longest` tokens.

        Returns the reason if the parent is faster in all kinds. During a contest HK computes the
        batch.
        """
        if self._loading:
            self.slower = {}
            return ""
        whys = {id(each): each.why_not(longest) for each in self._decisions.values()}
        self.slower = {decision: why for decision, why in whys.items() if why}
        return "" if len(self.slower) < len(whys) else next(iter(whys.values()), "")

    def _contest(self, layer: Any, request: AttentionRequest) -> Contest:
        if not self._loading:
            raise RuntimeError("the model did not have the layer when it was loaded")
        return contest_of(self._hk, self._backend, self._runner, layer, request)


def kind_of(request: AttentionRequest, pool: Any, parent: str) -> Kind:
    """The kind of a layer that HK could serve.

    Args:
        pool: the runner's `token_to_kv_pool`.
        parent: SGLang's name of the backend.
    """
    heads = f"{request.num_heads}/{request.num_kv_heads} heads of {request.head_size}"
    facts = [str(request.dtype).removeprefix("torch."), heads]
    window, cap = request.sliding_window, request.logits_soft_cap
    facts.append("causal" if window is None else f"window {window}")
    facts += [f"logits capped at {cap}"] if cap else []
    facts += [f"{pool.dtype} cache".removeprefix("torch.")] if pool.dtype != request.dtype else []
    facts.append(f"pages of {pool.page_size}")
    device = device_for(request.device_type).name
    return Kind(ROUTE, "SGLang", device, ", ".join(facts), parent)


def contest_of(
    hk: Prefill, backend: Any, runner: Any, layer: Any, request: AttentionRequest
) -> Contest:
    """Makes both sides compute the same prompts in `layer`, one of the model's.

    Args:
        backend: the parent, not yet wrapped; its pool is `borrowed`.

    Raises:
        RuntimeError: a request has a place in the page table.
    """
    tables = runner.req_to_token_pool
    if tables.available_size() < tables.size:
        raise RuntimeError("requests run already")
    limit = min(_places(runner.token_to_kv_pool), tables.max_context_len, batch_tokens())

    @cache
    def prompt(tokens: int) -> Prompt:
        batch = batch_of(tokens, runner)
        hk.rehearse(batch)
        return batch, *tensors(tokens, layer, runner)

    def ours(tokens: int) -> Callable[[], torch.Tensor]:
        batch, q, k, v = prompt(tokens)

        def call() -> torch.Tensor:
            out = hk.attend(q, k, v, layer, batch, True, {})
            if out is None:
                raise RuntimeError("HK did not compute the prompt")
            return out

        return call

    def theirs(tokens: int) -> Callable[[], torch.Tensor]:
        batch, q, k, v = prompt(tokens)
        forward = backend.forward_extend
        return lambda: forward(q, k, v, layer, batch, save_kv_cache=True)

    def planned(tokens: int) -> float:
        device: Any = device_for(request.device_type)
        return float(device.microseconds(request, tokens))

    return Contest(prompts_up_to(limit), ours, theirs, planned)


@contextmanager
def borrowed(runner: Any) -> Iterator[None]:
    """Restores the page tables afterwards. What a prompt leaves in the pool belongs to no
    request."""
    tables = runner.req_to_token_pool.req_to_token
    held = tables[REQUEST].clone()
    mapping = getattr(runner.token_to_kv_pool, "full_to_swa_index_mapping", None)
    held_mapping = None if mapping is None else mapping.clone()
    try:
        yield
    finally:
        tables[REQUEST] = held
        if mapping is not None:
            mapping.copy_(held_mapping)


def batch_of(tokens: int, runner: Any) -> ForwardBatch:
    """Makes a batch of one fresh prompt, in the pool's pages from 1 on, as a scheduler does."""
    pool, device = runner.token_to_kv_pool, runner.device
    slots = torch.arange(pool.page_size, pool.page_size + tokens, device=device)
    runner.req_to_token_pool.req_to_token[REQUEST, :tokens] = slots.to(torch.int32)
    mapping = getattr(pool, "full_to_swa_index_mapping", None)
    if mapping is not None:
        mapping[slots] = slots.to(mapping.dtype)
    batch = one_batch([(tokens, 0)], torch.tensor([REQUEST], device=device), slots)
    translator = runner.kv_index_translator
    if hasattr(translator, "own_plan"):  # triton and aiter find the slots through it
        translator.own_plan(batch).bind(batch, translator)
    return batch


def _places(pool: Any) -> int:
    """Tokens that fit the smallest pool of a hybrid model, as a batch has slots in each."""
    parts = [getattr(pool, name, None) for name in ("full_kv_pool", "swa_kv_pool")]
    return min(int(part.size) for part in (pool, *parts) if part is not None)


def tensors(
    tokens: int, layer: Any, runner: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Makes random query, keys and values."""
    generator = torch.Generator(runner.device).manual_seed(0)

    def random(heads: int) -> torch.Tensor:
        shape = (tokens, heads, layer.qk_head_dim)
        return torch.randn(shape, generator=generator, dtype=runner.dtype, device=runner.device)

    query = random(layer.tp_q_head_num).flatten(1)
    return query, random(layer.tp_k_head_num), random(layer.tp_k_head_num)
