"""An SGLang layer: its name, and whether HK serves it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import torch
from sglang.srt.layers.linear import LinearBase
from sglang.srt.runtime_context import get_exec

from hk_backend.engine.holding import holding
from hk_backend.engine.linear import packed_layer
from hk_backend.engine.linear.packed_layer import FORMAT_OF, request_of
from hk_backend.engine.patching import wrap
from hk_backend.ops import LinearRequest
from hk_backend.terms.verdict import Verdict

READ_BY_MODELS = frozenset(
    (
        *("f_b_proj", "gate", "in_proj", "in_proj_ba", "in_proj_qkvz", "kv_b_proj", "wo_a", "wq_b"),
        "lm_head",  # a head that is a linear layer (Grok): the logits processor multiplies by it
    )
)
"""Layers whose weights some of SGLang's models read themselves (models/*.py)."""
READ = "SGLang's models may read its weight themselves"


def install() -> None:
    """Makes SGLang's layers keep their names, as most do not; harmless to call again."""
    wrap(LinearBase, "__init__", _init)


def _init(original: Any, layer: Any, *args: Any, **kwargs: Any) -> None:
    # set before the module is made, as that chooses its quantisation method
    layer.__dict__["prefix"] = args[5] if len(args) > 5 else kwargs.get("prefix", "")
    original(layer, *args, **kwargs)


def read_by_models(layer: Any) -> bool:
    """Whether a model may read the layer's weight itself."""
    return str(getattr(layer, "prefix", "")).rpartition(".")[2] in READ_BY_MODELS


def verdict_on(request: LinearRequest) -> Verdict:
    """Whether HK serves a layer in this process."""
    unproven = "--enable-deterministic-inference: not proven for HK" if is_deterministic() else ""
    if _prepared.get():
        unproven = unproven or "weights that SGLang has prepared: a load format of saved states"
    return packed_layer.verdict_on(request, unproven)


def device_type() -> str:
    """Type in torch of the device that SGLang creates a layer on."""
    return torch.get_default_device().type


def why_not_packed(weight: torch.Tensor) -> str:
    """Reason why HK cannot serve a layer with the unquantised `weight` `[N, K]`; or empty."""
    format = FORMAT_OF.get(weight.dtype)
    if format is None or weight.element_size() < 2:
        return f"a weight in {weight.dtype}"
    return verdict_on(request_of(weight)).why


def loading_prepared_weights() -> AbstractContextManager[None]:
    """Context for the loading of a model's state as it was in another server's memory.

    SGLang has already processed the layers that it then loads the state into.
    """
    return holding(_prepared, True)


_prepared: ContextVar[bool] = ContextVar("prepared", default=False)


def is_deterministic() -> bool:
    """Whether results must not depend on the batch."""
    try:
        return bool(get_exec().deterministic.enable_deterministic_inference)
    except ValueError:  # no server has set its arguments
        return False
