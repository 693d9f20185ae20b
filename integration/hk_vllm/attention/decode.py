"""Decides whether HK computes the decode rows of a layer, by the device and by a contest.

The contest is held like that of prefill (contest.py), on batches of requests with one new token
each. Both sides read the same cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.platforms import current_platform

from hk_backend.config import get_config
from hk_backend.devices import device_for
from hk_backend.engine import loggers
from hk_backend.engine.attention import DECODE, MOST_QUERY_TOKENS, AttentionRoute, ask
from hk_backend.engine.decode_rows import DecodeRows, batches
from hk_backend.engine.evidence import Contest, Decision, Kind, Unserved, decide, planned
from hk_backend.ops import DecodeRequest
from hk_backend.routing.metrics import count_layer
from hk_backend.terms.attention_step import AttentionStep
from hk_backend.terms.verdict import Verdict
from hk_vllm.attention.contest import Parent, described, largest_context, largest_step, tensors
from hk_vllm.ranks import tensor_parallel

logger = loggers.of("vllm", "attention")


def decode_verdict(impl: Any, block_size: int, max_query_len: int = 1) -> Verdict:
    """Whether HK computes decode rows of `impl`, whose form and cache HK reads."""
    return ask(_request(impl, block_size, max_query_len, impl._hk_form))


def decide_decode(impl: Any, layer: dict[str, Any]) -> tuple[Decision, ...]:
    """Decides who computes the decode of `impl`, constructed with the arguments `layer`.

    Returns:
        an answer for each length of requests, by their number (`Decision.why_not`). None of them
        if decode is not a route.
    """
    if DECODE not in get_config().backend:
        return ()
    config = get_current_vllm_config()
    device = device_for(current_platform.device_type).name
    found = []
    for keys, requests in _batches(impl, config):
        text = f"{described(impl)}, {keys} keys"
        kind = Kind(DECODE, "vLLM", device, text, impl.hk_parent.get_name())
        if not impl.hk_measured:
            found.append(Decision(kind))
            continue
        contest = _contest(impl, layer, config, keys, requests)
        with torch.inference_mode():  # requests run in this mode
            found.append(decide(kind, contest, tensor_parallel()))
    return tuple(found)


def rows_of(
    impls: Sequence[Any], layers: int, block_size: int, max_query_len: int
) -> DecodeRows | None:
    """The decode rows of layers that share their metadata; None if the parent computes them.

    Args:
        impls: the layers whose prefill HK serves.
        layers: number of all layers of the group.
        max_query_len: most query tokens of a decode row: one and its drafts.
    """
    if not impls or DECODE not in get_config().backend:
        return None
    longest = min(max_query_len, MOST_QUERY_TOKENS)
    left = ["" if len(impls) == layers else "a layer of its group is not served"]
    for impl in impls:
        why = next((w for each in impl._hk_decode_decisions if (w := each.somewhere.why)), "")
        left.append(why or decode_verdict(impl, block_size, longest).why)
    why = next(filter(None, left), "")
    for impl in impls:
        if not impl._hk_decode_counted:  # vLLM also makes builders to profile graphs
            count_layer(DECODE, why)
        impl._hk_decode_counted = True
    device = device_for(current_platform.device_type).name
    said = f"left to vLLM's attention: {why}" if why else f"computed by HK on {device}"
    loggers.info_once(logger, "hk_backend: decode attention is %s", said)
    if why:
        return None
    return DecodeRows([each for impl in impls for each in impl._hk_decode_decisions], longest)


def _request(impl: Any, block_size: int, max_query_len: int, form: Any) -> DecodeRequest:
    known = asdict(impl._hk_request) | {
        "kv_dtype": impl._hk_kv_dtype,
        "paged": True,
        "block_size": block_size,
        "cache_layouts": form.layouts,
    }
    return DecodeRequest(**known, max_query_len=max_query_len)


def _batches(impl: Any, config: VllmConfig) -> tuple[tuple[int, tuple[int, ...]], ...]:
    request = impl._hk_request
    size = (impl._hk_kv_dtype or request.dtype).itemsize
    bytes_of_token = 2 * request.num_kv_heads * request.head_size * size
    longest = largest_context(config) or largest_step(config)
    return batches(longest, config.scheduler_config.max_num_seqs, bytes_of_token)


def _contest(
    impl: Any, layer: dict[str, Any], config: VllmConfig, keys: int, requests: tuple[int, ...]
) -> Callable[[], Contest]:
    """Makes HK's route and the parent compute the same decode rows over the same cache."""

    def make() -> Contest:
        parent = Parent(impl, layer, config, requests[-1] * (keys + config.cache_config.block_size))
        form = impl.hk_form_of(parent.builder)
        request = _request(impl, parent.block_size, 1, form)
        verdict = ask(request)
        if not verdict:
            raise Unserved(verdict.why)
        inputs = {count: tensors(impl, count) for count in requests}
        rows = {count: [(1, keys - 1)] * count for count in requests}
        return Contest(
            requests,
            lambda count: _ours(impl, parent, form, inputs[count], keys),
            lambda count: parent.call(inputs[count], rows[count]),
            planned(replace(request, keys=keys)),
        )

    return make


def _ours(
    impl: Any, parent: Parent, form: Any, inputs: Any, keys: int
) -> Callable[[], torch.Tensor]:
    """A call of HK's route without its checks and counters; `impl` keeps its own route."""
    query = inputs[0]
    batch = parent.batch(inputs, [(1, keys - 1)] * len(query))
    step = AttentionStep.of(
        batch.query_start_loc,
        len(query),
        batch.seq_lens,
        batch.block_table_tensor,
        keys,
        max_query_len=1,
    )
    typed = parent.kv_cache
    if impl._hk_kv_dtype is not typed.dtype:
        typed = typed.view(impl._hk_kv_dtype)
    cache = form.read(typed, parent.impl)
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    given = query, cache.key.tensor, cache.value.tensor, output
    arguments = {"query": query, "out": output, "paged_kv": cache, **impl._hk_layer_arguments}
    if impl._hk_sinks is not None:  # their values are not loaded yet
        arguments["sinks"] = torch.zeros(len(impl._hk_sinks), device=query.device)
    if impl._hk_kv_dtype is not impl._hk_dtype:
        k_scale, v_scale = form.scales(parent.layer)
        arguments.update(k_scale=k_scale, v_scale=v_scale)
    route = AttentionRoute(logger, DECODE)

    def call() -> torch.Tensor:
        route.launch(step, True, given, lambda: dict(arguments))
        return output

    return call
