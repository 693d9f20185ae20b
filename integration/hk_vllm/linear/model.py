"""Accounts for a loaded model: which of its linear layers HK serves, and why not the others."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

from vllm.distributed import get_pp_group
from vllm.forward_context import get_forward_context, is_forward_context_available
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.platforms import current_platform

from hk_backend.engine import loggers
from hk_backend.engine.holding import holding
from hk_backend.engine.linear.account import account as account_layers
from hk_backend.engine.linear.account import tables_as_heads as heads_among
from hk_backend.engine.linear.checkpoint_rotations import check_fold, check_reload
from hk_backend.engine.linear.heads import quantization_of, requesting
from hk_backend.engine.linear.kept import reloading
from hk_backend.engine.linear.packed_layer import EXPERTS, no_kernel
from hk_backend.engine.linear.route import ROUTE, is_attached, tell_dummy_runs
from hk_backend.engine.loaded import model_is_loaded
from hk_backend.engine.patching import wrap
from hk_vllm import compile_key
from hk_vllm.linear.head import head_requested_by
from hk_vllm.linear.kernel_lists import counterpart
from hk_vllm.linear.tied import share_table, why_table_stays
from hk_vllm.linear.unquantized import pack_table

logger = loggers.of("vllm", "linear")

COUNTED = LinearBase, ParallelLMHead, RoutedExperts


def install() -> None:
    """Accounts for every model that vLLM's loaders return; harmless to call again."""
    wrap(BaseModelLoader, "load_model", _load)
    tell_dummy_runs(is_dummy_run)


def _load(
    original: Any, loader: Any, vllm_config: Any, model_config: Any, *args: Any, **kwargs: Any
) -> Any:
    mark_dummy_logits()
    watch_reloads()
    beside = adapters_and_readers(vllm_config, model_config)
    check_fold(quantization_of(model_config.hf_config), *beside)
    with requesting(head_requested_by(vllm_config, model_config)):
        model = original(loader, vllm_config, model_config, *args, **kwargs)
        account(model)
        if why := share_table(model, why_table_stays(vllm_config)):
            logger.warning("hk_backend: the embedding keeps its table in 16 bits: %s", why)
        model_is_loaded("vLLM", logger, current_platform.device_type)
    return model


def watch_reloads() -> None:
    """Makes this process's worker check a checkpoint before a reload, and finish the reload."""
    worker = getattr(sys.modules.get(WORKER), "Worker", None)
    if worker is not None:
        wrap(worker, "reload_weights", _reload)


def _reload(original: Any, worker: Any, *args: Any, **kwargs: Any) -> Any:
    path = kwargs.get("weights_path", args[1] if len(args) > 1 else None)
    if path is not None:
        check_reload(quantization_of(worker.model_config.hf_config), path)
    with reloading():
        return original(worker, *args, **kwargs)


WORKER = "vllm.v1.worker.gpu_worker"
"""Module of vLLM's GPU worker, from which the CPU's derives."""
OWN_DRAFTS = ("ngram", "ngram_gpu", "suffix", "draft_model")
"""Values of vLLM's `SpeculativeConfig.method` that read nothing of the model but its tokens."""


def adapters_and_readers(vllm_config: Any, model_config: Any) -> tuple[str, str]:
    """Names of what adds to layers' outputs, and of what reads hidden states or writes embeddings.

    The names are vLLM's own; each text is empty if there is none.
    """
    drafts = vllm_config.speculative_config
    readers = {
        f"speculative method {getattr(drafts, 'method', '')!r}": drafts is not None
        and drafts.method not in OWN_DRAFTS,
        "--runner pooling": model_config.runner_type == "pooling",
        "--enable-prompt-embeds": model_config.enable_prompt_embeds,
    }
    adapters = "" if vllm_config.lora_config is None else "LoRA adapters"
    return adapters, ", ".join(name for name, found in readers.items() if found)


RUNNERS = ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner")
"""Modules with a `_dummy_sampler_run`, which asks for logits outside of any forward context."""
_dummy_logits: ContextVar[bool] = ContextVar("dummy_logits", default=False)


def is_dummy_run() -> bool:
    """Whether vLLM profiles or warms up: it then has no attention metadata, and samples."""
    if not is_forward_context_available():
        return _dummy_logits.get()
    return get_forward_context().attn_metadata is None


def mark_dummy_logits() -> None:
    """Marks the sampling of a warm-up in the runners of this process, unlike that of a request."""
    for name in RUNNERS:
        runner = getattr(sys.modules.get(name), "GPUModelRunner", None)
        if hasattr(runner, "_dummy_sampler_run"):
            wrap(runner, "_dummy_sampler_run", _sample_dummy)


def _sample_dummy(original: Any, *args: Any, **kwargs: Any) -> Any:
    with holding(_dummy_logits, True):
        return original(*args, **kwargs)


def account(model: Any) -> None:
    """Counts and logs the layers of `model`, and packs an embedding that is the LM head too.

    Raises:
        StrictError: a layer is left to vLLM, with HK_STRICT=1.
    """
    tables = tables_as_heads(model)
    for table in tables:
        pack_table(table)
    layers = []
    for name, layer in model.named_modules():
        if isinstance(layer, COUNTED) or layer in tables:
            why = "" if is_attached(layer) else why_left(layer)
            if why is not None:
                layers.append((name, why))
    device = account_layers(layers, "vLLM", current_platform.device_type, logger)
    if device:
        # a graph holds the packed layout of this device, in the layers that are packed
        served = "\n".join(name for name, why in layers if not why)
        compile_key.add_route(f"{ROUTE} on {device}", served)


def tables_as_heads(model: Any) -> list[Any]:
    """The embedding that computes a model's logits, if the model has no LM head."""
    modules = list(model.modules())
    logits = [each for each in modules if isinstance(each, LogitsProcessor)]
    tables = [each for each in modules if isinstance(each, VocabParallelEmbedding)]
    if (
        not logits
        or not get_pp_group().is_last_rank
        or any(isinstance(table, ParallelLMHead) for table in tables)
    ):
        return []
    sizes = {each.org_vocab_size for each in logits}
    return heads_among(tables, sizes, "org_vocab_size")


def why_left(layer: Any) -> str | None:
    """Reason why vLLM computes `layer`; None if the layer has no weight here."""
    weight = getattr(layer, "weight", None)
    if weight is not None and weight.is_meta:
        return None
    if isinstance(layer, RoutedExperts):
        return EXPERTS
    if hasattr(layer, "hk_left"):  # set by unquantized.py
        why: str | None = layer.hk_left
        return why
    scheme = getattr(layer, "scheme", None) or layer.quant_method
    for name in ("fp8_linear", "linear_kernel", "kernel", "ocp_mx_linear"):
        kernel: Any = getattr(scheme, name, None)
        ours = counterpart(kernel, weight_only=name == "linear_kernel")
        if ours is not None:
            ok, reason = ours.can_implement(kernel.config)
            theirs = f"{type(kernel).__name__}, which a flag or variable of vLLM asks for"
            return theirs if ok else str(reason)
    return no_kernel(scheme)
