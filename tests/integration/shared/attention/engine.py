"""The protocol between the shared tests of the attention route and each engine.

The module `engine` in the folder of an engine's attention tests implements it.
"""

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
"""A function that computes a batch of rows, checks it, and tells for each row if it is HK's."""


class AttentionEngine(Protocol):
    EXTEND: Row
    """A row of new tokens behind cached ones, which end where a page of the engine may."""
    MIXED: list[Row]
    """A batch with every kind of request, in the order in which HK serves it."""
    KINDS: Sequence[Row]
    """All kinds of rows that the engine's batches have."""
    KNOWN: Mapping[str, Known]
    """Cases of what HK can know of the engine's batches; the first one is the default."""
    PAGE: int
    """Cached tokens are multiples of this number."""
    SHORTEST: int
    """The fewest new tokens of a row: 0 if batches are padded with such rows."""

    def routed(self, backend: str = "attention") -> AbstractContextManager[RouteCounters]:
        """Install the routes of HK_BACKEND in this process; returns those of prefill, at zero."""
        ...

    def layer(self, dtype: torch.dtype = torch.float32, drafts: int = 0) -> Any:
        """An attention layer of the engine in HK's wrapper, and its cache.

        Its rows may have `drafts` to verify.
        """
        ...

    def measured(self, dtype: torch.dtype = torch.float32, drafts: int = 0) -> Any:
        """A layer like `layer`'s, measured beside its parent with prompts of 32 and 128 tokens."""
        ...

    def prompt(self, layer: Any, tokens: int) -> RowTensors:
        """The prompt of so many tokens that both sides compute when `layer` is measured."""
        ...

    def check(self, layer: Any, rows: Sequence[Row], seed: int = 0) -> None:
        """Compute random tensors of `rows` with `layer`, and compare with the reference."""
        ...

    def without_parent(self, patch: pytest.MonkeyPatch) -> None:
        """Make the parent fail if it has to compute anything while `patch` lasts."""
        ...

    def whose(self, known: Known, patch: pytest.MonkeyPatch) -> Whose:
        """Make a `Whose` that works while `patch` lasts."""
        ...
