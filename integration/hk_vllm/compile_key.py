"""Adds the active routes to vLLM's compile-cache key.

A route changes which fusions vLLM may compile around its layers. So a graph compiled with it must
not be reused without it. vLLM hashes `additional_config`, and constructs layers before it compiles
anything. So a served layer adds its route there.
"""

from __future__ import annotations

import hashlib
from typing import Any

KEY = "hk_backend"


class HashedWith:
    """An `additional_config` object that vLLM was given, together with the active routes."""

    def __init__(self, inner: Any, routes: str) -> None:
        self._inner = inner
        self.routes = routes

    def compute_hash(self) -> str:
        return f"{self._inner.compute_hash()}-{KEY}={self.routes}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def add_route(route: str, layers: str = "") -> None:
    """Adds `route` to the configuration that is current while layers are constructed.

    Args:
        layers: text of the layers that the route serves, as measurements may differ at another
            start.
    """
    from vllm.config import get_current_vllm_config_or_none

    config = get_current_vllm_config_or_none()
    if config is None:
        return
    if layers:
        route = f"{route} of {hashlib.sha256(layers.encode()).hexdigest()[:16]}"
    extra = config.additional_config
    if isinstance(extra, dict):
        extra[KEY] = ",".join(sorted({*extra.get(KEY, "").split(","), route} - {""}))
    elif isinstance(extra, HashedWith):
        extra.routes = ",".join(sorted({*extra.routes.split(","), route}))
    else:
        config.additional_config = HashedWith(extra, route)
