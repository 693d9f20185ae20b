"""Metadata of the parent that are built when they are first used.

A parent may wait for the device to build metadata (ROCM_AITER_FA does, in every step with a prefill
row). HK computes such a step without them. So they are made only if the parent computes part of the
step after all, or if the engine asks for any of their fields.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any, get_args

from vllm.v1.attention.backend import AttentionMetadataBuilder

MAKE = "_hk_make"
OURS = ("hk", MAKE)
"""Attributes that are read and written without building."""


def lazy(metadata_class: type, make: Callable[[], Any]) -> Any:
    """An instance of `metadata_class` that becomes the result of `make` at the first access.

    Access to its `hk` does not count.
    """
    found = object.__new__(_lazy_class(metadata_class))
    object.__setattr__(found, MAKE, make)
    return found


def is_built(metadata: Any) -> bool:
    """Whether the parent has built the metadata."""
    return not hasattr(type(metadata), "hk_builds")


def build(metadata: Any) -> Any:
    """The metadata, built by the parent now if they were not."""
    if is_built(metadata):
        return metadata
    built = object.__getattribute__(metadata, MAKE)()
    object.__delattr__(metadata, MAKE)
    object.__setattr__(metadata, "__class__", type(built))
    for name, value in vars(built).items():
        object.__setattr__(metadata, name, value)
    return metadata


def metadata_class_of(builder: type) -> type | None:
    """Class of the metadata that `builder` builds, as it declares; None if it does not say."""
    for each in builder.__mro__:
        for base in getattr(each, "__orig_bases__", ()):
            if getattr(base, "__origin__", None) is AttentionMetadataBuilder:
                (found,) = get_args(base)
                return found if isinstance(found, type) else None
    return None


@cache
def _lazy_class(metadata_class: Any) -> Any:
    class Lazy(metadata_class):  # type: ignore[misc]
        hk_builds = True

        def __getattribute__(self, name: str) -> Any:
            if name in OURS:
                return object.__getattribute__(self, name)
            if name == "__class__":  # for `isinstance`: the class that it will become
                return metadata_class
            return getattr(build(self), name)

        def __setattr__(self, name: str, value: Any) -> None:
            if name not in OURS:
                build(self)
            object.__setattr__(self, name, value)

        def __copy__(self) -> Any:  # Python looks it up on the class
            return copy.copy(build(self))

    Lazy.__name__ = Lazy.__qualname__ = f"HKLazy{metadata_class.__name__}"
    return Lazy
