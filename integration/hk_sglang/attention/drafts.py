"""Decode rows of SGLang's drafts: those that a target model verifies, and a draft model's own.

A row has one query token, or one and its drafts: TARGET_VERIFY of the target, DRAFT_EXTEND_V2 of
its draft model. A chain lets these see each other as tokens of a prompt do. Between the two, the
draft model runs in steps of one token (DECODE), each with a backend of its own and all with one
batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch

Keys = TypeVar("Keys", int, torch.Tensor)


@dataclass(frozen=True)
class DraftStep:
    """The step of a draft model that a backend serves; by default it serves none.

    Args:
        ahead: keys of a row that SGLang's lengths leave out, as they are the steps' own.
        most: those of the last step.
        refusal: reason why HK does not compute the step; empty if it may.
    """

    ahead: int = 0
    most: int = 0
    refusal: str = "drafting"


NOT_A_STEP = DraftStep()


def refuse_decode(batch: Any, step: DraftStep = NOT_A_STEP) -> str:
    """Reason why only the parent can compute a batch of decode rows; empty if HK may."""
    drafts = getattr(batch, "spec_info", None)
    if batch.forward_mode.is_target_verify():
        why = refuse_drafts(drafts)
    elif batch.forward_mode.is_draft_extend_v2():
        why = refuse_extend(drafts)
    else:
        why = step.refusal if drafts is not None else ""
    if why:
        return why
    if getattr(batch, "encoder_lens", None) is not None:
        return "an encoder's tokens in front of the prompt"
    if getattr(batch, "tbo_parent_token_range", None) is not None:
        return "two-batch overlap"
    if batch.seq_lens_cpu is None:
        return "no sequence lengths on the host"
    return ""


def refuse_drafts(drafts: Any) -> str:
    """Reason why HK does not verify a batch's drafts, its `spec_info`; empty if HK may.

    The mask of a tree lies on the device. EAGLE's drafts are a chain with `topk` 1, DFLASH's always
    are (dflash_info.py), and NGRAM's may branch whatever `topk` is (`tree_topk` in ngram_info.py).
    """
    if getattr(drafts, "tree_topk", 1) != 1:
        return "a tree of drafts"
    if getattr(drafts, "topk", None) != 1:
        return f"drafts of {type(drafts).__name__}"
    if getattr(drafts, "ragged_verify_layout", None) is not None:
        return "adaptive verification"
    return ""


def refuse_extend(drafts: Any) -> str:
    """Reason why HK does not compute a draft model's DRAFT_EXTEND_V2; empty if HK may.

    Its rows are as wide as those that were verified, which `EagleDraftExtendInput` tells.
    """
    if getattr(drafts, "num_tokens_per_req", 0) < 1:
        return f"drafts of {type(drafts).__name__}"
    if getattr(drafts, "num_front_tokens", 0):  # a row may then have fewer keys than tokens
        return "drafts behind tokens that are computed again"
    return ""


def query_tokens(batch: Any) -> int:
    """Query tokens of each row of a batch that `refuse_decode` lets pass."""
    if batch.forward_mode.is_target_verify():
        return int(batch.spec_info.draft_token_num)
    # a step's is unknown while a graph is captured
    return max(int(getattr(batch.spec_info, "num_tokens_per_req", 1)), 1)


def all_keys(batch: Any, seq_lens: Keys, tokens: int, ahead: int = 0) -> Keys:
    """Keys of each row with `tokens` query tokens, by SGLang's `seq_lens`.

    SGLang does not count those of a row that verifies drafts (`_apply_cuda_graph_metadata` in
    aiter_backend.py). On the host some of its workers do, which makes a bound of the result.
    It counts those of DRAFT_EXTEND_V2, where a row of padding has one key for all its tokens.

    Args:
        ahead: see `DraftStep`.
    """
    if batch.forward_mode.is_target_verify():
        return seq_lens + tokens
    if batch.forward_mode.is_draft_extend_v2():
        return seq_lens.clamp(min=tokens) if torch.is_tensor(seq_lens) else max(seq_lens, tokens)
    return seq_lens + ahead


def is_copy(batch: Any, planned: Any) -> bool:
    """Whether `batch` is a copy of the `planned` batch of drafts, in whose place layers get it.

    SGLang makes the metadata of a draft model's batch, and then copies it for each step into other
    memory (`load_batch` in eager_runner.py). All copies have the same `spec_info`.
    """
    mode, drafts = batch.forward_mode, getattr(batch, "spec_info", None)
    if drafts is None or not (mode.is_decode() or mode.is_draft_extend_v2()):
        return False
    same = drafts is planned.spec_info and mode is planned.forward_mode
    return same and bool(batch.batch_size == planned.batch_size)
