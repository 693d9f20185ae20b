"""The names of SGLang's attention flags, and what the user chose with them."""

from __future__ import annotations

from typing import Any

NAME = "hk"
ASKING = ("attention_backend", "prefill_attention_backend")
"""Flags by which `hk` asks for the attention route."""
FLAGS = (*ASKING, "decode_attention_backend", "speculative_draft_attention_backend")
FIRST_STEP = "handle_deprecated_dp_attention"
"""The first step of SGLang's resolution (sglang/srt/arg_groups/pipeline.py)."""


def prefill_choice(server_args: Any) -> str | None:
    """The user's own choice of a backend for prefill; None: SGLang's, or HK."""
    chosen: str | None = server_args.prefill_attention_backend or server_args.attention_backend
    return None if chosen == NAME else chosen
