"""The factories of SGLang's attention backends, each followed by HK's wrapping.

`ATTENTION_BACKENDS` (sglang/srt/layers/attention/attention_registry.py) holds a factory per name.
Each is replaced by one that calls it and then hands its backend to HK, if that is the backend of
the runner's prefill. Names, and with them everything that SGLang decides by name, stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from hk_backend.config import get_config
from hk_backend.engine import loggers
from hk_backend.engine.attention import ROUTE
from hk_backend.engine.patching import wrap
from hk_backend.engine.strict import StrictError, refuse
from hk_backend.routing.routes import routes

logger = loggers.of("sglang", "attention")

Factory = Callable[[Any], Any]
"""From a ModelRunner to its attention backend."""


def register_attention() -> str:
    """Replace the factories; returns why not, or nothing. Harmless to call again."""
    from hk_sglang.contract import check_engine

    verdict = check_engine()
    if not verdict:
        return f"SGLang is not one the plugin knows: {verdict.why}"
    from sglang.srt.model_executor.model_runner_components import attention_backend_setup

    from hk_sglang import serving

    serving.install()
    route_all()
    if hasattr(attention_backend_setup, BUILDER):
        wrap(attention_backend_setup, BUILDER, _build)
    return ""


BUILDER = "_build_full_attention_backend_from_str"
"""SGLang's function that looks a factory up, after all plugins are loaded."""


def route_all() -> None:
    """Replace the factories that are not routed yet, another plugin's among them."""
    from sglang.srt.layers.attention.attention_registry import (
        ATTENTION_BACKENDS,
        register_attention_backend,
    )

    for name, factory in list(ATTENTION_BACKENDS.items()):
        if not hasattr(factory, "hk_original"):
            register_attention_backend(name)(routed(name, factory))


def _build(original: Callable[..., Any], **arguments: Any) -> Any:
    """Build a backend, by a factory that another plugin registered after HK, too."""
    route_all()
    return original(**arguments)


def routed(name: str, factory: Factory) -> Factory:
    """`factory` of the backend `name`, whose product HK wraps where it serves prefill."""

    @wraps(factory)
    def make(runner: Any) -> Any:
        backend = factory(runner)
        if getattr(runner, "prefill_attention_backend_str", None) != name:
            return backend  # the decode half of a pair
        try:
            if ROUTE not in get_config().backend:
                return backend  # the flag was that of an earlier server of this process
            from hk_sglang.attention.backend import wrap as wrap_backend

            wrap_backend(backend, name, runner)
        except StrictError:
            raise  # past SGLang's scheduler, which stops the server
        except Exception as error:  # a broken installation of ours must not break the engine
            why = f"HK cannot be loaded: {type(error).__name__}: {error}"
            routes.disable(ROUTE, why)
            logger.exception("hk_backend: SGLang serves attention without HK: %s", why)
            refuse(why)
        return backend

    make.hk_original = factory  # type: ignore[attr-defined]
    return make
