"""Replaces the factories of SGLang's attention backends by ones that also wrap the backend.

`ATTENTION_BACKENDS` (sglang/srt/layers/attention/attention_registry.py) holds a factory per name.
Each new factory calls the old one, and hands the backend to HK if it serves the runner's prefill.
So do the methods of `DraftBackendFactory`, which makes those of a draft model.
Names stay the same, and so does everything that SGLang decides by name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

from hk_backend.config import get_config
from hk_backend.engine import loggers
from hk_backend.engine.attention import ROUTE
from hk_backend.engine.contract import why_unknown
from hk_backend.engine.patching import wrap
from hk_backend.engine.strict import StrictError, refuse
from hk_backend.routing.routes import routes

logger = loggers.of("sglang", "attention")

Factory = Callable[[Any], Any]
"""Makes the attention backend of a ModelRunner."""


def register_attention() -> str:
    """Replaces the factories; returns the reason why not, or nothing. Harmless to call again."""
    from hk_sglang.contract import check_engine

    if why := why_unknown("SGLang", check_engine()):
        return why
    from sglang.srt.model_executor.model_runner_components import attention_backend_setup
    from sglang.srt.speculative.draft_utils import DraftBackendFactory

    from hk_sglang import serving, sleeping

    serving.install()
    sleeping.install()
    route_all()
    if hasattr(attention_backend_setup, BUILDER):
        wrap(attention_backend_setup, BUILDER, _build)
    for name, wrapper in DRAFT_FACTORIES.items():
        wrap(DraftBackendFactory, name, _drafting(wrapper))
    return ""


BUILDER = "_build_full_attention_backend_from_str"
"""Name of SGLang's function that looks up a factory, after all plugins are loaded."""


def route_all() -> None:
    """Replaces the factories that are not yet replaced, those of other plugins included."""
    from sglang.srt.layers.attention.attention_registry import (
        ATTENTION_BACKENDS,
        register_attention_backend,
    )

    for name, factory in list(ATTENTION_BACKENDS.items()):
        if not hasattr(factory, "hk_original"):
            register_attention_backend(name)(routed(name, factory))


def _build(original: Callable[..., Any], **arguments: Any) -> Any:
    """Builds a backend, also by a factory that another plugin registered after HK."""
    route_all()
    return original(**arguments)


def routed(name: str, factory: Factory) -> Factory:
    """Makes a factory of the backend `name`, whose result HK wraps if it serves prefill."""

    @wraps(factory)
    def make(runner: Any) -> Any:
        backend = factory(runner)
        if getattr(runner, "prefill_attention_backend_str", None) == name:  # else half of a pair
            _let_hk("backend.wrap", backend, name, runner)
        return backend

    make.hk_original = factory  # type: ignore[attr-defined]
    return make


DRAFT_FACTORIES = {
    "create_draft_extend_backend": "draft_backends.wrap_extend",
    "create_decode_backend": "draft_backends.wrap_steps",
}
"""SGLang's methods that make the backends of a draft model, and HK's functions that wrap these."""


def _drafting(wrapper: str) -> Callable[..., Any]:
    """Makes a function around a method of `DRAFT_FACTORIES`, after which `wrapper` follows."""

    def make(original: Callable[..., Any], factory: Any) -> Any:
        backend = original(factory)
        if backend is not None:  # one step of a draft needs none
            _let_hk(wrapper, backend, factory.draft_model_runner)
        return backend

    return make


def _let_hk(wrapper: str, *known: Any) -> None:
    """Lets HK's function `wrapper` wrap a backend, unless HK cannot be loaded.

    Args:
        known: what it takes, with the runner of the backend at the end.

    Raises:
        StrictError: HK does not serve it, with HK_STRICT=1.
    """
    if ROUTE not in get_config().backend:
        return  # the flag belonged to an earlier server of this process
    module, function = wrapper.split(".")
    try:
        getattr(import_module(f"hk_sglang.attention.{module}"), function)(*known)
    except StrictError:
        raise  # SGLang's scheduler does not catch it, which stops the server
    except Exception as error:  # a broken HK installation must not break the engine
        why = f"HK cannot be loaded: {type(error).__name__}: {error}"
        if not known[-1].is_draft_worker:  # it shares the served model's process
            routes.disable(ROUTE, why)
        logger.exception("hk_backend: SGLang serves attention without HK: %s", why)
        refuse(why)
