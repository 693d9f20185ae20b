"""A wrapper class per parent backend, made when vLLM first asks for it.

vLLM's registry holds paths. `hk_vllm.attention.backend.HK_CPU_ATTN` resolves through `__getattr__`
to a subclass of the parent that only exchanges builder and implementation. Name, cache spec,
layouts, block sizes and writer stay the parent's.
"""

from __future__ import annotations

from functools import cache
from types import new_class
from typing import Any

from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from hk_backend.engine import loggers
from hk_backend.engine.foreign import foreign_method
from hk_backend.engine.strict import refuse
from hk_vllm.attention.builder import HKBuilder, weaker
from hk_vllm.attention.cache_forms import FORMS, FormOf
from hk_vllm.attention.impl import HKImpl
from hk_vllm.attention.registry import PREFIX, parent_of
from hk_vllm.contract import check_parent

logger = loggers.of("vllm", "attention")


def __getattr__(name: str) -> Any:
    member = name.removeprefix(PREFIX)
    if member == name or member not in FORMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return wrapper_of(member)


def wrapper_of(member: str) -> Any:
    """The wrapper of the class registered for `member`, or that class itself if HK leaves it.

    Raises:
        ImportError: raised by the class itself (vLLM takes that for "not available here").
        StrictError: HK leaves the class, with HK_STRICT=1.
    """
    return _wrapper_of(member, parent_of(member))


@cache
def _wrapper_of(member: str, path: str) -> Any:
    parent = resolve_obj_by_qualname(path)
    if _is_around_hk(parent):
        return parent
    if refuse(why := _why_left(parent, AttentionBackendEnum[member].value)):
        logger.error("hk_backend: %s stays as it is: %s", member, why)
        return parent
    if path != AttentionBackendEnum[member].value:
        said = "hk_backend: %s: HK wraps %s, which another plugin registered"
        logger.info(said, member, path)
    return wrap(parent, FORMS[member], PREFIX + member)


def _is_around_hk(parent: Any) -> bool:
    """Whether another plugin derived its class from HK's, which it found in the registry."""
    impl_of = getattr(parent, "get_impl_cls", None)
    return impl_of is not None and issubclass(impl_of(), HKImpl)


def _why_left(parent: Any, original: str) -> str:
    """Reason why HK does not wrap `parent`; empty if it does.

    `original` is the path of the class that vLLM itself has for the member.
    """
    if not (verdict := check_parent(parent)):
        return verdict.why
    if not issubclass(parent, resolve_obj_by_qualname(original)):
        return (
            f"{parent.__name__}, which another plugin registered, does not derive from {original}"
        )
    impl, builder = parent.get_impl_cls(), parent.get_builder_cls()
    return foreign_method(impl, "vllm", "forward") or foreign_method(builder, "vllm", "build")


def wrap(parent: Any, form_of: FormOf, name: str, measured: bool = True) -> Any:
    """Makes a subclass of backend `parent` whose prefill HK computes.

    Args:
        form_of: returns the form of the parent's caches for its builder.
        measured: whether HK serves a layer only where it is faster than the parent.
    """
    parent_builder, parent_impl = parent.get_builder_cls(), parent.get_impl_cls()
    builder = _subclass(
        f"{name}_Builder",
        (HKBuilder, parent_builder),
        hk_form_of=staticmethod(form_of),
        _cudagraph_support=weaker(parent_builder._cudagraph_support),
    )
    impl = _subclass(
        f"{name}_Impl",
        (HKImpl, parent_impl),
        hk_parent=parent,
        hk_form_of=staticmethod(form_of),
        hk_measured=measured,
    )
    return _subclass(
        name,
        (parent,),
        get_builder_cls=staticmethod(lambda: builder),
        get_impl_cls=staticmethod(lambda: impl),
    )


def _subclass(name: str, bases: tuple[Any, ...], **members: Any) -> Any:
    return new_class(name, bases, exec_body=lambda body: body.update(members, __module__=__name__))
