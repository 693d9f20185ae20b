"""`--attention-backend hk`, and the same of `--prefill-attention-backend` and `--decode-...`.

HK is a wrapper around the backend that SGLang chooses, so its name must not reach the many places
of SGLang that ask for a backend by name (page sizes, graphs, allow-lists of models, drafts). Before
SGLang resolves its arguments, `hk` is declared to be no choice; the raw argument, which SGLang
keeps and hands to its processes, remembers the wish.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

NAME = "hk"
FLAGS = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "speculative_draft_attention_backend",
)
FIRST_STEP = "handle_deprecated_dp_attention"
"""The first step of SGLang's resolution (sglang/srt/arg_groups/pipeline.py)."""


def offer() -> None:
    """Add the choice; harmless to call again. An SGLang that cannot take it has none."""
    try:
        from sglang.srt.arg_groups.choices import (
            ATTENTION_BACKEND_CHOICES,
            add_attention_backend_choices,
        )
        from sglang.srt.arg_groups.resolution_hooks import register_resolution_hook
    except ImportError:  # `contract.check_attention` says so where HK is asked for
        return
    if NAME in ATTENTION_BACKEND_CHOICES:
        return
    add_attention_backend_choices([NAME])
    register_resolution_hook(FIRST_STEP)(take_choice)


def take_choice(server_args: Any, previous: Callable[[Any], None]) -> None:
    """Before the first step: leave the choice to SGLang wherever it was `hk`."""
    from sglang.srt.arg_groups.overrides import declare_resolution

    named = [flag for flag in FLAGS if getattr(server_args, flag) == NAME]
    if named:
        declare_resolution(server_args, "hk_sglang", **dict.fromkeys(named))
        _ask_for_attention()
    previous(server_args)


def _ask_for_attention() -> None:
    """The flag without `HK_BACKEND=attention` means it, in this process and its children."""
    from hk_backend.config import get_config
    from hk_sglang.plugin import register_routes

    asked = os.environ.get("HK_BACKEND", "").strip()
    if asked == "1" or "attention" in asked.split(","):
        return
    os.environ["HK_BACKEND"] = f"{asked},attention" if asked else "attention"
    get_config.cache_clear()
    register_routes()


def prefill_choice(server_args: Any) -> str | None:
    """The user's own choice of a backend for prefill; None: SGLang's, or HK."""
    chosen: str | None = server_args.prefill_attention_backend or server_args.attention_backend
    return None if chosen == NAME else chosen
