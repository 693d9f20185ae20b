"""The names of SGLang's attention flags, and the user's choice by them."""

from __future__ import annotations

from typing import Any

NAME = "hk"
ASKING = ("attention_backend", "prefill_attention_backend")
"""Flags by which `hk` asks for the attention route."""
FLAGS = (*ASKING, "decode_attention_backend", "speculative_draft_attention_backend")
FIRST_STEP = "handle_deprecated_dp_attention"
"""First step of SGLang's resolution of arguments (sglang/srt/arg_groups/pipeline.py)."""


def prefill_choice(server_args: Any) -> str | None:
    """The user's own choice of a prefill backend; None if it is left to SGLang, or HK."""
    chosen: str | None = server_args.prefill_attention_backend or server_args.attention_backend
    return None if chosen == NAME else chosen
