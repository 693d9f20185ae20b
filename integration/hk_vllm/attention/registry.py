"""Puts HK's wrappers in vLLM's registry of attention backends, in place of the classes there.

Another plugin may register a class for the same member, before HK or after it. HK wraps that class
if it derives from vLLM's own, and leaves it otherwise (backend.py).
"""

from __future__ import annotations

from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

from hk_backend.engine import loggers

logger = loggers.of("vllm", "attention")

MODULE = "hk_vllm.attention.backend"
PREFIX = "HK_"
_parents: dict[str, str] = {}
"""Paths of the classes that HK's wrappers have replaced, by member."""


def register_wrappers(members: tuple[str, ...]) -> None:
    """Registers HK's wrappers for `members`, and the first one's also for CUSTOM.

    Harmless to call again; it then also wraps what another plugin has registered since. Another
    plugin's CUSTOM stays, as a user has to ask for it.
    """
    for name in members:
        member = AttentionBackendEnum[name]
        path = member.get_path()
        if not _is_ours(path):
            _parents[name] = path
            register_backend(member, path_of(name))
    if has_custom():
        register_backend(AttentionBackendEnum.CUSTOM, path_of(members[0]))
    else:
        said = "hk_backend: CUSTOM stays %s, which another plugin registered"
        loggers.info_once(logger, said, AttentionBackendEnum.CUSTOM.get_path())


def has_custom() -> bool:
    """Whether CUSTOM is HK's, or free."""
    custom = AttentionBackendEnum.CUSTOM
    return not custom.is_overridden() or _is_ours(custom.get_path())


def path_of(name: str) -> str:
    """Path of HK's wrapper for the member `name`."""
    return f"{MODULE}.{PREFIX}{name}"


def parent_of(name: str) -> str:
    """Path of the class that HK's wrapper for the member `name` wraps."""
    return _parents.get(name) or str(AttentionBackendEnum[name].value)


def _is_ours(path: str) -> bool:
    return path.startswith(f"{MODULE}.{PREFIX}")
