"""A wrapper class per parent backend, made when vLLM first asks for it.

vLLM's registry holds paths: `hk_vllm.attention.backend.HK_CPU_ATTN` resolves through `__getattr__`
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
from hk_vllm.attention.builder import HKBuilder, weaker
from hk_vllm.attention.cache_forms import FORMS, FormOf
from hk_vllm.attention.impl import HKImpl
from hk_vllm.contract import check_parent

logger = loggers.of("vllm", "attention")

PREFIX = "HK_"


def __getattr__(name: str) -> Any:
    member = name.removeprefix(PREFIX)
    if member == name or member not in FORMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return wrapper_of(member)


@cache
def wrapper_of(member: str) -> Any:
    """The wrapper of registry member `member`, or its original class if that breaks the contract.

    Raises:
        ImportError: the original's own (vLLM takes that for "not available here").
    """
    parent = resolve_obj_by_qualname(AttentionBackendEnum[member].value)
    verdict = check_parent(parent)
    if not verdict:
        logger.error("hk_backend: %s stays as it is: %s", member, verdict.why)
        return parent
    return wrap(parent, FORMS[member], PREFIX + member)


def wrap(parent: Any, form_of: FormOf, name: str, measured: bool = True) -> Any:
    """A subclass of backend `parent` whose prefill HK computes.

    Args:
        form_of: the form of the parent's caches, by its builder.
        measured: HK serves a layer only where it is faster than the parent.
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
