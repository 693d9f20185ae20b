"""`--attention-backend hk`, and the same for `--prefill-attention-backend` and `--decode-...`.

HK is a wrapper around the backend that SGLang chooses. So its name must not reach the many places
where SGLang compares a backend's name (page sizes, graphs, allow-lists of models, drafts). Before
SGLang resolves its arguments, `hk` is treated as if no choice had been made. The raw argument,
which SGLang keeps and passes to its processes, records the user's choice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

NAME = "hk"
ASKING = ("attention_backend", "prefill_attention_backend")
"""Flags by which `hk` asks for the attention route."""
FLAGS = (*ASKING, "decode_attention_backend", "speculative_draft_attention_backend")
FIRST_STEP = "handle_deprecated_dp_attention"
"""First step of SGLang's resolution of arguments (sglang/srt/arg_groups/pipeline.py)."""


def prefill_choice(server_args: Any, drafts: bool = False) -> str | None:
    """The user's own choice of a prefill backend; None if it is left to SGLang, or HK.

    Args:
        drafts: whether it is that of the draft model, which has a flag of its own.
    """
    chosen: str | None = server_args.prefill_attention_backend or server_args.attention_backend
    if drafts:
        chosen = server_args.speculative_draft_attention_backend or chosen
    return None if chosen == NAME else chosen


def offer() -> None:
    """Adds the choice `hk`, if this SGLang can take it; harmless to call again."""
    try:
        from sglang.srt.arg_groups.choices import (
            ATTENTION_BACKEND_CHOICES,
            add_attention_backend_choices,
        )
        from sglang.srt.arg_groups.resolution_hooks import register_resolution_hook
    except ImportError:  # `contract.check_engine` reports that if HK is enabled
        return
    if NAME in ATTENTION_BACKEND_CHOICES:
        return
    add_attention_backend_choices([NAME])
    register_resolution_hook(FIRST_STEP)(take_choice)


def take_choice(server_args: Any, previous: Callable[[Any], None]) -> None:
    """Leaves the choice to SGLang wherever it was `hk`, before the first step of resolution."""
    from sglang.srt.arg_groups.overrides import declare_resolution

    _forget_the_last_server()
    named = [flag for flag in FLAGS if getattr(server_args, flag, None) == NAME]
    if named:
        declare_resolution(server_args, "hk_sglang", **dict.fromkeys(named))
    for flag in sorted({*named} - {*ASKING}):
        from hk_backend.engine import loggers  # not imported unless the user asked for HK

        said = "hk_backend: %s: HK computes decode beside its prefill only, using SGLang's own"
        loggers.of("sglang", "plugin").warning(said, flag)
    if {*named} & {*ASKING}:
        _ask_for_attention()
    previous(server_args)


_asked: tuple[str | None, str] | None = None
"""`HK_BACKEND` as the user set it, and as a server's flag has changed it."""


def _ask_for_attention() -> None:
    """Enables the attention route for this server's processes, if the flag alone asks for it."""
    from hk_backend.config import ConfigError, get_config, read_config
    from hk_sglang.routes import register_routes

    global _asked  # noqa: PLW0603
    try:
        routes = read_config().backend
    except ConfigError:  # reported when the plugin was loaded
        return
    if "attention" in routes:
        return
    _asked = os.environ.get("HK_BACKEND"), ",".join([*routes, "attention"])
    os.environ["HK_BACKEND"] = _asked[1]
    get_config.cache_clear()
    register_routes()


def _forget_the_last_server() -> None:
    """Undoes the effect of an earlier server's flag, in a process that starts several."""
    global _asked  # noqa: PLW0603
    if _asked is None:
        return
    from hk_backend.config import get_config

    users, ours = _asked
    _asked = None
    if os.environ.get("HK_BACKEND") != ours:
        return
    if users is None:
        del os.environ["HK_BACKEND"]
    else:
        os.environ["HK_BACKEND"] = users
    get_config.cache_clear()
