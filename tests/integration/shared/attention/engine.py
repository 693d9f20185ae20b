"""What the shared tests of the attention route ask of an engine: the module `engine` of its folder,
which the fixture `attention` gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest
import torch

from hk_backend.routing.routes import RouteCounters
from tests.integration.shared.attention.expected import RowTensors
from tests.integration.shared.attention.rows import Row
from tests.integration.shared.attention.split import Known

Whose = Callable[[Sequence[Row], int], list[bool]]
"""Computes a batch of these rows and holds it to the reference; which of them are HK's."""


class AttentionEngine(Protocol):
    EXTEND: Row
    """New tokens behind cached ones, which end where a page of the engine may."""
    MIXED: list[Row]
    """A batch of every kind of request, in the order in which HK serves it."""
    KINDS: Sequence[Row]
    """All kinds of rows that its batches have."""
    KNOWN: Mapping[str, Known]
    """What may be known of its batches; first what is known by default."""
    PAGE: int
    """Cached tokens are multiples of it."""
    SHORTEST: int
    """The fewest new tokens of a row: 0 if batches are padded with such."""

    def routed(self) -> AbstractContextManager[RouteCounters]:
        """The attention route in this process, and its counters from zero."""
        ...

    def layer(self, dtype: torch.dtype = torch.float32) -> Any:
        """An attention layer of the engine in HK's wrapper, and its cache."""
        ...

    def measured(self, dtype: torch.dtype = torch.float32) -> Any:
        """Such a layer, which is measured with prompts of 32 and 128 tokens."""
        ...

    def prompt(self, layer: Any, tokens: int) -> RowTensors:
        """What both sides compute then."""
        ...

    def check(self, layer: Any, rows: Sequence[Row], seed: int = 0) -> None:
        """Random queries, keys and values of `rows` through `layer`, held to the reference."""
        ...

    def whose(self, known: Known, patch: pytest.MonkeyPatch) -> Whose:
        """Looks at whose rows are, while `patch` lasts."""
        ...
