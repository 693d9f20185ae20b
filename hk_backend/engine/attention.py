"""The attention route in an engine: asked, checked if HK_CHECK says so, survived if it breaks."""

from __future__ import annotations

import logging
from typing import Any

import torch

from hk_backend.config import get_config
from hk_backend.ops import AttentionRequest, attention_prefill, supports_attention
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import ShadowCheck
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.verdict import Verdict, refused

ROUTE = "attention"


def ask(request: AttentionRequest) -> Verdict:
    """Whether the configured device serves `request`; no device, or a broken one, is a reason."""
    try:
        return supports_attention(request)
    except Exception as error:  # no device, or one whose extension does not load
        return refused(f"{type(error).__name__}: {error}")


class PrefillRoute:
    """The calls of one layer or backend. What breaks in HK switches the route off in this process
    and never reaches the engine.

    Args:
        logger: the engine's, for the line that says so.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._check = ShadowCheck(ROUTE, get_config().check)

    def compute(self, query: torch.Tensor, out: torch.Tensor, arguments: dict[str, Any]) -> str:
        """HK's attention into `out`.

        Args:
            query: `[tokens, num_heads, head_size]`; `arguments`: `ops.attention_prefill`'s others.

        Returns:
            why the parent must compute instead, or nothing.
        """
        try:
            attention_prefill(query, out=out, **arguments)
            if not self._check.due():
                return ""
            of = AttentionArguments(query=query, out=out, **arguments)
            why = self._check.attention_prefill(of).why
        except Exception as error:
            return self.survive(error)
        return self._switch_off(why) if why else ""

    def survive(self, error: Exception) -> str:
        """After an error in HK; returns why the parent takes over."""
        return self._switch_off(f"HK failed: {type(error).__name__}: {error}", error)

    def _switch_off(self, why: str, error: Exception | None = None) -> str:
        routes.disable(ROUTE, why)
        self._logger.error("hk_backend: route %s is switched off: %s", ROUTE, why, exc_info=error)
        return why
