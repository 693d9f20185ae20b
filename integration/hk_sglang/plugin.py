"""The entry point `sglang.srt.plugins`: SGLang calls `register()` in each of its processes."""

from __future__ import annotations

import logging
import os

# SGLang's own logger above it: its handlers and levels apply
logger = logging.getLogger("sglang.hk_sglang.plugin")


class RegisterExit(SystemExit):
    """HK_STRICT=1 and the plugin cannot register; the message says why.

    Not an `Exception`: SGLang logs and forgets those that a plugin raises
    (sglang/srt/plugins/__init__.py, `load_plugins`).
    """


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
        register_routes()
    from hk_sglang import flags

    flags.offer()


def register_routes() -> None:
    """The routes that `HK_BACKEND` names (raises as `register`)."""
    from hk_backend.engine.registration import Plugin

    Plugin("SGLang", logger, REGISTER, share_counters, RegisterExit).register_routes()


def register_attention() -> str:
    """Route the attention backends that SGLang makes; returns why not, or nothing."""
    from hk_sglang.attention.install import register_attention

    return register_attention()


def register_linear() -> str:
    """Change SGLang's linear layers; returns why not, or nothing."""
    from hk_sglang.linear.install import register_linear

    return register_linear()


def share_counters() -> str:
    """Share this engine's counters between its processes, and log them when it ends.

    SGLang's `/metrics` reads the directory of prometheus_client's multiprocess mode, and finds the
    counters there.
    """
    from hk_backend import metrics_directory
    from hk_backend.engine import report

    if metrics_directory.share():
        report.at_exit("SGLang", logger)
    return ""


REGISTER = {"attention": register_attention, "linear": register_linear}
"""What puts a route in place, and returns why it did not, or nothing."""
