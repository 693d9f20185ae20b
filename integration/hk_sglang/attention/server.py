"""Server configurations that HK does not serve."""

from __future__ import annotations

from typing import Any

from hk_sglang.attention.parents import PARENTS
from hk_sglang.resolution import prefill_choice


def refuse_server(name: str, runner: Any) -> str:
    """Reason why HK serves none of `runner`'s prefill; empty if it may.

    `name` is the prefill backend's.
    """
    chosen = prefill_choice(runner.server_args, runner.is_draft_worker)
    if chosen is not None:
        return f"the server's own choice of {chosen} for prefill"
    if name not in PARENTS:
        return f"attention backend {name}"
    if runner.is_draft_worker and not drafts_on_its_own_backends(runner):
        return "a draft model"
    if runner.use_mla_backend:
        return "latent attention"
    return refuse_parallel() or refuse_execution(runner)


def drafts_on_its_own_backends(runner: Any) -> bool:
    """Whether a draft model's batches are those of SGLang's EAGLE worker (eagle_worker_v2.py).

    Other workers draft without keys of their own, not causally, or with several models.
    """
    from sglang.srt.runtime_context import get_spec

    algorithm = runner.spec_algorithm
    if algorithm.is_standalone():
        return True
    if not algorithm.is_eagle() or algorithm.is_frozen_kv_mtp():
        return False
    return not get_spec().enable_multi_layer_eagle


def refuse_parallel() -> str:
    """Reason why HK does not support how a sequence or a batch is split over devices; or empty."""
    from sglang.srt.runtime_context import get_disagg, get_exec, get_parallel

    if get_parallel().attn_cp_size > 1:
        return "context parallelism"
    if get_parallel().attn_dcp_size > 1:
        return "decode context parallelism"
    if get_exec().overlap.enable_two_batch_overlap:
        return "two-batch overlap"
    if get_disagg().enable_pdmux:
        return "prefill and decode multiplexed on one device"
    return ""


def refuse_execution(runner: Any) -> str:
    from sglang.srt.model_executor.cuda_graph_config import Backend, Phase
    from sglang.srt.runtime_context import get_exec

    graph = getattr(get_exec().graph, "cuda_graph_config", None)
    prefill = Backend.DISABLED if graph is None else getattr(graph, Phase.PREFILL).backend
    if prefill != Backend.DISABLED and runner.device != "cpu":
        return f"prefill in graphs ({prefill})"  # they replay without Python
    if get_exec().deterministic.enable_deterministic_inference:
        return "--enable-deterministic-inference: not proven for HK"
    if runner.kv_index_translator.is_translating:
        return "a unified memory pool"
    return ""


def query_tokens() -> int:
    """Most query tokens of a decode row in this server: one, and its drafts if there are some."""
    from sglang.srt.runtime_context import max_speculative_num_draft_tokens

    return max_speculative_num_draft_tokens() or 1
