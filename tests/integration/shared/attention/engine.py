"""What the shared tests of the attention route ask of an engine: the module `engine` of its folder,
which the fixture `attention` gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from tests.integration.shared.attention.rows import Row


class AttentionEngine(Protocol):
    EXTEND: Row
    """New tokens behind cached ones, which end where a page of the engine may."""
    MIXED: list[Row]
    """A batch of every kind of request, in the order in which HK serves it."""

    def layer(self, dtype: torch.dtype = torch.float32) -> Any:
        """An attention layer of the engine in HK's wrapper, and its cache."""
        ...

    def run(self, layer: Any, rows: Sequence[Row]) -> None:
        """Random queries, keys and values of `rows` through `layer`."""
        ...

    def check(self, layer: Any, rows: Sequence[Row], seed: int = 0) -> None:
        """The same, and its output is the reference's."""
        ...
