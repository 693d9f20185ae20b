"""`merge_attention`: joins two partial attentions over disjoint sets of keys."""

from __future__ import annotations

import torch

from hk_backend.ops.attention_check import check_no_overlap, check_output
from hk_backend.ops.attention_envelope import DTYPES
from hk_backend.ops.registry import declare, run
from hk_backend.terms.attention_arguments import MergeArguments
from hk_backend.terms.checks import bad, check_no_grad


def merge_attention(
    output_a: torch.Tensor,
    lse_a: torch.Tensor,
    output_b: torch.Tensor,
    lse_b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Joins two partial attentions of the same queries over disjoint sets of keys.

    Args:
        output_a, output_b: `[tokens, num_heads, head_size]`, one dtype.
        lse_a, lse_b: float32 `[num_heads, tokens]`, natural log-sum-exp. Minus infinity: that
            side saw no key, and its output does not count, whatever it holds.
        out: tensor to write; may be `output_a` or `output_b`.

    Returns:
        the joined output and its log-sum-exp (https://arxiv.org/abs/2501.01005, section 2.2).

    Raises:
        ValueError: shapes, dtypes or devices that do not fit; the message names the argument.
    """
    if out is None:
        out = torch.empty_like(output_a)
    lse = torch.empty_like(lse_a)
    arguments = MergeArguments(output_a, lse_a, output_b, lse_b, out, lse)
    _check(arguments)
    run(arguments, output_a)
    return out, lse


def _check(of: MergeArguments) -> None:
    """Makes the checks of `merge_attention`.

    Raises:
        ValueError: naming the argument, its value and what would be valid.
    """
    first = of.output_a
    if first.dim() != 3:
        bad("output_a", tuple(first.shape), "the shape [tokens, num_heads, head_size]")
    if first.dtype not in DTYPES:
        bad("output_a", first.dtype, "bfloat16, float16 or float32")
    check_no_grad(output_a=first, output_b=of.output_b, out=of.out)
    check_output("output_b", of.output_b, first, tuple(first.shape))
    check_output("out", of.out, first, tuple(first.shape))
    check_no_overlap("out", of.out)
    for name, lse in (("lse_a", of.lse_a), ("lse_b", of.lse_b)):
        expected = (first.shape[1], first.shape[0])
        if lse.shape != expected or lse.dtype != torch.float32 or lse.device != first.device:
            found = f"{lse.dtype} {tuple(lse.shape)} on {lse.device}"
            bad(name, found, f"float32 {expected} on {first.device}")


declare(merge_attention, MergeArguments)
