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
    """Installs the routes that `HK_BACKEND` names; raises the errors of `plugin.register`.

    SGLang's `/metrics` reads the directory of prometheus_client's multiprocess mode, and finds the
    counters there.
    """
    from hk_backend.engine.registration import Plugin
    from hk_backend.routing import metrics_directory

    share = metrics_directory.share
    Plugin("SGLang", logger, "hk_sglang", share, RegisterExit).register_routes()
