"""Installs the routes that `HK_BACKEND` names."""

from __future__ import annotations

from hk_backend.engine import loggers

logger = loggers.of("sglang", "plugin")


class RegisterExit(SystemExit):
    """HK_STRICT=1 and the plugin cannot register; the message says why.

    This is not an `Exception`, as SGLang logs and forgets those that a plugin raises
    (sglang/srt/plugins/__init__.py, `load_plugins`).
    """


def register_routes() -> None:
    """Installs the routes that `HK_BACKEND` names; raises the errors of `plugin.register`."""
    from hk_backend.engine.registration import Plugin

    Plugin("SGLang", logger, REGISTER, share_counters, RegisterExit).register_routes()


def register_attention() -> str:
    """Routes the attention backends that SGLang makes; returns the reason why not, or nothing."""
    from hk_sglang.attention.install import register_attention

    return register_attention()


def register_linear() -> str:
    """Changes SGLang's linear layers; returns the reason why not, or nothing."""
    from hk_sglang.linear.install import register_linear

    return register_linear()


def share_counters() -> str:
    """Shares this engine's counters between its processes, and logs them when it ends.

    SGLang's `/metrics` reads the directory of prometheus_client's multiprocess mode, and finds the
    counters there.
    """
    from hk_backend.engine import report
    from hk_backend.routing import metrics_directory

    if metrics_directory.share():
        report.at_exit("SGLang", logger)
    return ""


REGISTER = {"attention": register_attention, "linear": register_linear}
"""Function of each route that installs it, and returns the reason if it fails."""
