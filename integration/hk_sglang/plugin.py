"""The entry point `sglang.srt.plugins`: SGLang calls `register()` in each of its processes."""

from __future__ import annotations

import os


def register() -> None:
    """Put in place the routes that `HK_BACKEND` asks for.

    With `HK_BACKEND=0` nothing is imported and nothing patched. Without it only the choice `hk` of
    the attention flags is added, which then asks for the attention route. Harmless to call again,
    and in every process. Whatever stands in a route's way is one line in the log, and SGLang serves
    as it is.

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
