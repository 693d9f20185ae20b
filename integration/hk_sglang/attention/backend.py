"""The wrapper of a parent backend: HK computes prefill and decode, the parent everything else.

The backend that SGLang's factory made keeps its state, and becomes an instance of a subclass of its
own class. All other methods stay the parent's, except those named here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from hk_backend.engine import loggers
from hk_backend.engine.attention import ROUTE
from hk_backend.engine.contract import keeps
from hk_backend.engine.foreign import foreign, foreign_method
from hk_backend.engine.strict import refuse
from hk_backend.routing.routes import routes
from hk_sglang.attention.hk_attention import HKAttention
from hk_sglang.attention.server import refuse_server
from hk_sglang.contract import FORWARD, FORWARD_DECODE

logger = loggers.of("sglang", "attention")


def wrap(backend: Any, name: str, runner: Any) -> None:
    """Makes HK serve the prefill of `backend`, SGLang's `name`, or logs the reason why it does not.

    Raises:
        StrictError: HK does not serve it, with HK_STRICT=1.
    """
    if isinstance(getattr(backend, "hk", None), HKAttention):
        return  # another plugin's factory got this backend from HK's
    why = refuse_server(name, runner) or keeps(type(backend), [FORWARD]).why
    why = why or foreign_method(type(backend), "sglang", "forward_extend")
    if refuse(why):
        if not runner.is_draft_worker:  # it shares the served model's process
            routes.disable(ROUTE, why)
        logger.warning("hk_backend: SGLang serves attention without HK: %s", why)
        return
    if theirs := foreign(type(backend), "sglang"):
        logger.info("hk_backend: %s: HK wraps %s, which another plugin registered", name, theirs)
    why = keeps(type(backend), [FORWARD_DECODE]).why
    why = why or foreign_method(type(backend), "sglang", "forward_decode")
    backend.hk = HKAttention(backend, name, runner, decode_refusal=why)
    backend.__class__ = wrapper_of(backend.__class__)


@cache
def wrapper_of(parent: Any) -> Any:
    """Makes a subclass of backend class `parent` whose prefill HK computes.

    `parent` must be its only base, or an object of `parent` could not change its class to it.
    """

    class Wrapper(parent):  # type: ignore[misc]
        hk: HKAttention
        init_forward_metadata = _eager(parent)
        init_forward_metadata_out_graph = _for_graphs(parent)

        def init_cuda_graph_state(
            self, max_bs: int, max_num_tokens: int, *args: Any, **named: Any
        ) -> None:
            super().init_cuda_graph_state(max_bs, max_num_tokens, *args, **named)
            self.hk.allocate_graphs(max_bs, max_num_tokens)

        forward_extend = _forward(parent, "forward_extend")
        forward_decode = _forward(parent, "forward_decode")

    Wrapper.__name__ = Wrapper.__qualname__ = f"HK{parent.__name__}"
    return Wrapper


@cache
def steps_wrapper_of(parent: Any) -> Any:
    """Makes a subclass of class `parent`, which has the backends of a draft model's steps.

    SGLang's class may make their metadata without their methods, as intel_amx's does, and triton's
    before replays.
    """

    class Wrapper(parent):  # type: ignore[misc]
        hk: Any  # draft_backends.DraftSteps, which is above this module
        init_forward_metadata = _eager(parent)
        init_forward_metadata_out_graph = _for_graphs(parent)

    Wrapper.__name__ = Wrapper.__qualname__ = f"HK{parent.__name__}"
    return Wrapper


def _eager(parent: Any) -> Callable[..., None]:
    """Makes a wrapper's method that makes the metadata of a batch whose layers Python calls."""

    def init_forward_metadata(self: Any, forward_batch: Any) -> None:
        with self.hk.planned(forward_batch):
            parent.init_forward_metadata(self, forward_batch)

    return init_forward_metadata


def _for_graphs(parent: Any) -> Callable[..., None]:
    """Makes a wrapper's method that makes the metadata of a batch in a graph."""

    def init_forward_metadata_out_graph(
        self: Any, forward_batch: Any, in_capture: bool = False
    ) -> None:
        # SGLang calls this alone, and not in a capture, before it replays a graph
        with self.hk.planned(forward_batch, replays=not in_capture):
            parent.init_forward_metadata_out_graph(self, forward_batch, in_capture=in_capture)

    return init_forward_metadata_out_graph


def _forward(parent: Any, name: str) -> Callable[..., Any]:
    """Makes a wrapper's method `name`: HK computes a call if it may, else the method of `parent`.

    Another plugin may replace the parent's method at any time, so each call looks it up.
    """

    def forward(
        self: Any,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        **extra: Any,
    ) -> Any:
        out = self.hk.attend(q, k, v, layer, forward_batch, save_kv_cache, extra)
        if out is not None:
            return out
        theirs = getattr(parent, name)
        return theirs(self, q, k, v, layer, forward_batch, save_kv_cache, **extra)

    return forward
