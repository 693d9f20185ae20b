"""Things to break or change before an engine starts.

The engine must still serve, and say why HK does not.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


def extension_missing() -> None:
    """Make `import hk_backend._cpu` raise ImportError."""
    sys.modules["hk_backend._cpu"] = None  # type: ignore[assignment]


def extension_raises() -> None:
    """Make every call of the extension's attention raise."""
    extension: Any = importlib.import_module("hk_backend._cpu")

    def broken(*_: Any) -> None:
        raise RuntimeError("the extension is broken on purpose")

    extension.AttentionCall = broken


def linear_in_graphs() -> None:
    """Capture and replay linear layers (linear_graphs.py)."""
    from tests.integration.shared.e2e import linear_graphs

    linear_graphs.linear_in_graphs()


SABOTAGES: dict[str, Callable[[], None]] = {
    sabotage.__name__: sabotage
    for sabotage in (
        extension_missing,
        extension_raises,
        linear_in_graphs,
    )
}
