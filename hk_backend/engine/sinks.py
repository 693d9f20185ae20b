"""A layer's sinks in float32, as the operators take them, at an address that never changes."""

from __future__ import annotations

import torch


class FloatSinks:
    """A copy of a parameter, which prepared launches and graphs keep.

    Each call of a layer refreshes it, as an engine may load other weights at any time. In a capture
    the copy becomes a part of the graph.
    """

    def __init__(self) -> None:
        self._copy: torch.Tensor | None = None

    def of(self, sinks: torch.Tensor) -> torch.Tensor:
        """The values of `sinks` as they are now, or `sinks` itself if it is float32."""
        if sinks.dtype is torch.float32:
            return sinks
        if self._copy is None:
            self._copy = sinks.float()
        else:
            self._copy.copy_(sinks)
        return self._copy
