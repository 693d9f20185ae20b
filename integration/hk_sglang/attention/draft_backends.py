"""Wraps the backends of a draft model, which SGLang makes for each step and for all other batches.

SGLang first makes a backend for the draft model as for any other, which HK wraps and judges the
layers with. The worker then replaces it by those that `DraftBackendFactory` makes, whose class is
the same. So HK's parts of them know of the layers what the first one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from hk_backend.engine import loggers
from hk_backend.engine.contract import keeps
from hk_backend.engine.strict import refuse
from hk_sglang.attention.backend import steps_wrapper_of, wrapper_of
from hk_sglang.attention.drafts import DraftStep
from hk_sglang.attention.hk_attention import HKAttention

logger = loggers.of("sglang", "attention")

STEPS = (
    "init_forward_metadata(self, forward_batch)",
    "init_forward_metadata_out_graph(self, forward_batch, in_capture)",
)
"""Methods that HK plans the steps around; intel_amx's class has none for graphs."""


class DraftSteps:
    """HK's parts of the backends of a draft model's steps, which are planned with one batch."""

    def __init__(self, parts: Sequence[HKAttention]) -> None:
        self._parts = parts

    @contextmanager
    def planned(self, batch: Any, replays: bool = False) -> Iterator[None]:
        """Context for the making of all steps' metadata (see `HKAttention.planned`)."""
        with ExitStack() as stack:
            for part in self._parts:
                stack.enter_context(part.planned(batch, replays))
            yield


def wrap_extend(backend: Any, runner: Any) -> None:
    """Makes HK serve a draft model's prefill and DRAFT_EXTEND_V2, or logs why it does not.

    Args:
        backend: SGLang's, for the draft model of `runner`.

    Raises:
        StrictError: HK does not serve it, with HK_STRICT=1.
    """
    known = _judged(runner)
    if known is None or _refuse([backend], known, runner):
        return
    backend.hk = known.beside(backend)
    backend.__class__ = wrapper_of(backend.__class__)


def wrap_steps(steps: Any, runner: Any) -> None:
    """Makes HK serve the steps in which a draft model decodes, or logs why it does not.

    Args:
        steps: SGLang's, with the backend of each step in `attn_backends`.

    Raises:
        StrictError: HK does not serve them, with HK_STRICT=1.
    """
    known = _judged(runner)
    if known is None or _refuse(steps.attn_backends, known, runner, steps):
        return
    why, most = _refuse_steps(steps, runner), len(steps.attn_backends)
    parts: list[HKAttention] = []
    for ahead, backend in enumerate(steps.attn_backends, 1):
        first = parts[0] if parts else None
        parts.append(known.beside(backend, DraftStep(ahead, most, why), first))
    steps.hk = DraftSteps(parts)
    steps.__class__ = steps_wrapper_of(steps.__class__)  # first, as no step is planned without it
    for backend, part in zip(steps.attn_backends, parts, strict=True):
        backend.hk = part
        backend.__class__ = wrapper_of(backend.__class__)


def _judged(runner: Any) -> HKAttention | None:
    """HK's part of the draft model's first backend; None if HK does not serve that."""
    return getattr(_first(runner), "hk", None)


def _first(runner: Any) -> Any:
    return getattr(runner.attn_backend, "prefill_backend", runner.attn_backend)


def _refuse(backends: Sequence[Any], known: HKAttention, runner: Any, steps: Any = None) -> str:
    """Reason why HK wraps none of a draft model's `backends`, which is logged; empty if it does."""
    judged = _first(runner).__class__.__base__
    others = [each.__class__ for each in backends if each.__class__ is not judged]
    why = f"drafts on {others[0].__name__}, not on {judged.__name__}" if others else ""
    if any(each.token_to_kv_pool is not known.cache.pool for each in backends):
        why = why or "a KV pool that is not the draft model's"
    if steps is not None:
        there = [each for each in STEPS if hasattr(steps.__class__, each.partition("(")[0])]
        why = why or keeps(steps.__class__, there).why
    if refuse(why):
        logger.warning("hk_backend: SGLang drafts without HK: %s", why)
    return why


def _refuse_steps(steps: Any, runner: Any) -> str:
    """Reason why HK computes none of a draft model's steps; empty if it may."""
    if steps.topk != 1:
        return "a tree of drafts"
    if getattr(steps, "draft_window_size", 0):  # --speculative-draft-window-size
        return "a window for drafting alone"
    if hasattr(runner.token_to_kv_pool, "translate_loc_from_full_to_swa"):
        return "drafting over two pools"  # SGLang has the steps' slots in one tensor
    return ""
