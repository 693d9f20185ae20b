"""The entry point `sglang.srt.plugins`: SGLang calls `register()` in each of its processes."""

from __future__ import annotations

import os


def register() -> None:
    """Installs the routes that `HK_BACKEND` enables.

    With `HK_BACKEND=0` nothing is imported and nothing patched. Without `HK_BACKEND` only the
    choice `hk` of the attention flags is added; choosing it enables the attention route.

    Idempotent, and safe in every process. Anything that prevents a route is logged in one line, and
    SGLang serves without HK.

    Raises:
        RegisterExit: instead of that line, with HK_STRICT=1.
    """
    asked = os.environ.get("HK_BACKEND", "").strip()
    if asked == "0":
        return
    if asked:
        from hk_sglang.routes import register_routes

        register_routes()
    from hk_sglang import resolution

    resolution.offer()
