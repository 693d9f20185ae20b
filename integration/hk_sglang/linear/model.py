"""Accounts for a loaded model: which of its linear layers HK serves, and why not the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sglang.srt.layers.linear import LinearBase
from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.managers.tokenizer_manager import TokenizerManager
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
from sglang.srt.model_executor.runner_utils.capture_mode import get_is_capture_mode

from hk_backend.engine import loggers
from hk_backend.engine.linear.account import account as account_layers
from hk_backend.engine.linear.checkpoint_rotations import check_fold, check_reload
from hk_backend.engine.linear.heads import KEPT_HEAD, Head, quantization_of
from hk_backend.engine.linear.packed_layer import EXPERTS, no_kernel
from hk_backend.engine.linear.route import is_attached, tell_dummy_runs
from hk_backend.engine.patching import wrap
from hk_sglang.linear.head import (
    head_requested_by,
    heads_of,
    pack_head,
    share_table,
    why_table_stays,
)

logger = loggers.of("sglang", "linear")


def install() -> None:
    """Accounts for every model that SGLang loads; harmless to call again."""
    wrap(ModelRunner, "load_model", _load)
    wrap(TokenizerManager, "_tokenize_one_request", _tokenize)
    wrap(WeightUpdater, "update_weights_from_disk", _update)
    tell_dummy_runs(get_is_capture_mode)


def _load(original: Any, runner: Any) -> None:
    config = quantization_of(runner.model_config.hf_config)
    check_fold(config, *adapters_and_readers(runner.server_args))
    asked = head_requested_by(runner.model_config, runner.device)
    original(runner)
    account(runner.model, asked)
    if why := share_table(runner.model, asked, why_table_stays(runner.server_args)):
        logger.warning("hk_backend: the embedding keeps its table in 16 bits: %s", why)


def _tokenize(original: Any, manager: Any, request: Any) -> Any:
    """Refuses a request with embeddings if the model's weights have folds.

    No flag announces such requests. SGLang answers one with the error, and continues.
    """
    for name in EMBEDDINGS:
        if getattr(request, name, None) is not None:
            check_fold(quantization_of(manager.model_config.hf_config), "", name)
    return original(manager, request)


def _update(original: Any, updater: Any, model_path: str, *args: Any, **kwargs: Any) -> Any:
    try:
        check_reload(quantization_of(updater.model_config.hf_config), model_path)
    except ValueError as error:
        return False, str(error)
    return original(updater, model_path, *args, **kwargs)


EMBEDDINGS = ("input_embeds", "positional_embed_overrides")
"""Fields of a request that replace the embedding's rows, for a prompt or for scored tokens."""
OWN_DRAFTS = ("NGRAM", "STANDALONE")
"""Values of --speculative-algorithm that read nothing of the model but its tokens."""
RETURNED = (
    "enable_return_hidden_states",
    "return_hidden_states_mode",
    "enable_return_aux_hidden_states",
)
"""Options to return hidden states, as the user set them; an SGLang version may lack some."""


def adapters_and_readers(server_args: Any) -> tuple[str, str]:
    """Names of what adds to layers' outputs, and of what reads hidden states or writes embeddings.

    The names are SGLang's own; each text is empty if there is none.
    """
    algorithm = server_args.speculative_algorithm
    readers = {
        f"--speculative-algorithm {algorithm}": algorithm not in (None, *OWN_DRAFTS),
        "--is-embedding": server_args.is_embedding,
        **{f"--{name.replace('_', '-')}": getattr(server_args, name, None) for name in RETURNED},
    }
    adapters = "LoRA adapters" if server_args.enable_lora or server_args.lora_paths else ""
    return adapters, ", ".join(name for name, found in readers.items() if found)


def account(model: Any, asked: Head = KEPT_HEAD) -> None:
    """Packs the LM head of `model` in the requested format, and counts and logs its layers.

    Raises:
        ValueError: HK does not serve the head in the requested format.
        StrictError: a layer is left to SGLang, with HK_STRICT=1.
    """
    parameter = next(iter(model.parameters()), None)
    device_type = "cpu" if parameter is None else parameter.device.type
    account_layers(_layers(model, asked), "SGLang", device_type, logger)


def _layers(model: Any, asked: Head) -> Iterator[tuple[str, str]]:
    heads = heads_of(model)
    for name, layer in model.named_modules():
        if layer in heads:
            layer.__dict__.setdefault("prefix", name)
            yield name, pack_head(layer, model, asked)
        elif isinstance(layer, FusedMoE):
            yield name, EXPERTS
        elif isinstance(layer, LinearBase):
            yield name, "" if is_attached(layer) else why_left(layer)


def why_left(layer: Any) -> str:
    """Reason why SGLang computes `layer`."""
    method = getattr(layer, "scheme", None) or layer.quant_method
    return str(getattr(layer, "hk_left", "") or no_kernel(method))
