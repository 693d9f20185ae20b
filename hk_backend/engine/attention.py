"""The attention routes in an engine: ask HK, launch it, check it, and survive its errors.

Prefill and decode are two routes, as either may be off, or slower than the engine. A step's rows
are planned once (`AttentionStep`). A layer's first call goes through the public operator, with all
its checks. On a GPU its launch is then prepared, and later calls go straight to the launcher,
without torch's dispatcher. A call with tensors of another layout counts as a first call again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from hk_backend.config import get_config
from hk_backend.devices import device_for
from hk_backend.devices.base import Prepared
from hk_backend.ops import AttentionRequest, attention_decode, attention_prefill, supports
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import ShadowCheck
from hk_backend.terms.attention_arguments import AttentionArguments, DecodeArguments
from hk_backend.terms.attention_step import AttentionStep
from hk_backend.terms.checks import bad
from hk_backend.terms.verdict import Verdict, refused

ROUTE = "attention"
DECODE = "decode"
MOST_QUERY_TOKENS = 16
"""Most query tokens of a row that engines hand to decode: one and its drafts."""

LayerTensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Query, key, value and out of one call; key and value are packed, or the layer's cache."""


def ask(request: AttentionRequest) -> Verdict:
    """Whether the configured device serves `request`. A missing or broken device is a refusal."""
    try:
        return supports(request)
    except Exception as error:  # there is no device, or its extension does not load
        return refused(f"{type(error).__name__}: {error}")


class AttentionRoute:
    """The calls of one layer that belong to one route.

    An error in HK switches the route off and never reaches the engine.

    Args:
        logger: the engine's logger, for the line about a switch-off.
        route: `ROUTE`, or `DECODE` for steps with a `max_query_len`.
    """

    def __init__(self, logger: logging.Logger, route: str = ROUTE) -> None:
        self._logger, self.name = logger, route
        self._check = ShadowCheck(route, get_config().check)
        self._prepared: dict[tuple[bool, bool], Prepared | None] = {}

    def compute(
        self,
        step: AttentionStep,
        paged: bool,
        tensors: LayerTensors,
        arguments: Callable[[], dict[str, Any]],
    ) -> str:
        """Computes HK's attention into `out`.

        Args:
            paged: whether keys are read from the cache.
            arguments: returns all arguments of the operator except those of the step. Called when
                tensors of a layer are met for the first time, or a call is checked. Only the
                tensors may differ between calls of a layer.

        Returns:
            the reason why the parent must compute instead; empty if there is none.
        """
        try:
            self.launch(step, paged, tensors, arguments)
            why = self._why_wrong(step, paged, tensors, arguments) if self._check.on else ""
        except Exception as error:
            return survive(self._logger, error, self.name)
        return switch_off(self._logger, why, route=self.name) if why else ""

    def launch(
        self,
        step: AttentionStep,
        paged: bool,
        tensors: LayerTensors,
        arguments: Callable[[], dict[str, Any]],
    ) -> None:
        """Computes like `compute`, but without checks, and raises errors."""
        prepared = self._prepared.get((paged, step.gathered))
        if prepared is None or not prepared.launch(step, tensors):
            self._meet(step, paged, tensors, arguments())

    def _why_wrong(
        self,
        step: AttentionStep,
        paged: bool,
        tensors: LayerTensors,
        arguments: Callable[[], dict[str, Any]],
    ) -> str:
        """Compares the call with the reference if HK_CHECK draws it; returns what is wrong."""
        if not self._check.due(lambda: device_for(tensors[0].device.type).is_capturing()):
            return ""
        of = _arguments_class(step)(**arguments(), **step.rows(paged))
        return self._check.attention(of).why

    def _meet(
        self, step: AttentionStep, paged: bool, tensors: LayerTensors, arguments: dict[str, Any]
    ) -> None:
        """Runs the public operator, and prepares what later calls need to skip it."""
        names = ("query", "out") if paged else ("query", "key", "value", "out")
        for name in names:
            if len(arguments[name]) < step.num_tokens:
                expected = f"at least the step's {step.num_tokens}"
                bad(name, f"{len(arguments[name])} tokens", expected)
        arguments |= step.rows(paged)
        if step.max_query_len is None:
            attention_prefill(**arguments)
        else:
            attention_decode(**arguments)
        device = device_for(tensors[0].device.type)
        prepared = device.prepare(_arguments_class(step)(**arguments), tensors)
        self._prepared[paged, step.gathered] = prepared


def survive(logger: logging.Logger, error: Exception, route: str = ROUTE) -> str:
    """Switches a route off after an error in HK; returns the reason."""
    return switch_off(logger, f"HK failed: {type(error).__name__}: {error}", error, route)


def switch_off(
    logger: logging.Logger, why: str, error: Exception | None = None, route: str = ROUTE
) -> str:
    """Leaves a route to the engine in this process, logs that once, and returns `why`."""
    if routes.disable(route, why):
        logger.error("hk_backend: route %s is switched off: %s", route, why, exc_info=error)
    return why


def _arguments_class(step: AttentionStep) -> type[AttentionArguments]:
    return AttentionArguments if step.max_query_len is None else DecodeArguments
