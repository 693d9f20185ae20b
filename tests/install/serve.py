"""Serves one prompt with the installed package alone, and compares it with float64.

    HK_DEVICE=emulated:gfx950 python serve.py

Imports nothing of the checkout: wheels are tested with it where they are built. Prints JSON:
{"package": its folder, "device": name, "error": the largest, "bound": of it}; exits with 1 past it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import hk_backend
from hk_backend.devices import device_for
from hk_backend.ops import attention_prefill

TOKENS, HEADS, KV_HEADS, HEAD_SIZE = 70, 4, 2, 128


def main() -> int:
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(TOKENS, heads, HEAD_SIZE, dtype=torch.bfloat16)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    start = torch.tensor([0, TOKENS], dtype=torch.int32)
    out = attention_prefill(q, k, v, query_start_loc=start)
    assert isinstance(out, torch.Tensor)  # no log-sum-exp was asked for
    error = (out.double() - expected(q, k, v)).abs().max().item()
    # half an eps for rounding the output, half for each probability, and a margin of two
    bound = 2 * torch.finfo(v.dtype).eps * v.abs().max().item()
    package = str(Path(hk_backend.__file__).parent)
    answer = {"package": package, "device": device_for("cpu").name, "error": error, "bound": bound}
    print(json.dumps(answer))
    return int(not error <= bound)


def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention [tokens, heads, head size] of one request, in float64."""
    keys, values = (each.double().repeat_interleave(HEADS // KV_HEADS, 1) for each in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q.double(), keys) / HEAD_SIZE**0.5
    future = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    shares = scores.masked_fill(future, float("-inf")).softmax(-1)
    return torch.einsum("hij,jhd->ihd", shares, values)


if __name__ == "__main__":
    sys.exit(main())
