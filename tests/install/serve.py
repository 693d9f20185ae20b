"""Attention and a linear layer by the installed package alone, compared with float64.

    HK_DEVICE=emulated:gfx950 python serve.py

Imports nothing of the checkout: wheels are tested with it where they are built. Prints JSON:
{"package": its folder, "device": name, "attention": {"error": the largest, "bound": of it},
"linear": the same}; exits with 1 if an error is past its bound.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import hk_backend
from hk_backend.devices import device_for
from hk_backend.ops import attention_prefill, linear, pack_weight

TOKENS, HEADS, KV_HEADS, HEAD_SIZE = 70, 4, 2, 128
HIDDEN, OUTPUTS = 512, 200
DTYPE = torch.bfloat16


def main() -> int:
    torch.manual_seed(0)
    found = {"attention": attend(), "linear": multiply()}
    package = str(Path(hk_backend.__file__).parent)
    print(json.dumps({"package": package, "device": device_for("cpu").name, **found}))
    return int(not all(each["error"] <= each["bound"] for each in found.values()))


def attend() -> dict[str, float]:
    q, k, v = (
        torch.randn(TOKENS, heads, HEAD_SIZE, dtype=DTYPE) for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    start = torch.tensor([0, TOKENS], dtype=torch.int32)
    out = attention_prefill(q, k, v, query_start_loc=start)
    assert isinstance(out, torch.Tensor)  # no log-sum-exp was asked for
    # half an eps for rounding the output, half for each probability, and a margin of two
    bound = 2 * torch.finfo(DTYPE).eps * v.abs().max().item()
    return {"error": largest(out.double() - expected(q, k, v)), "bound": bound}


def multiply() -> dict[str, float]:
    x, w = (torch.randn(rows, HIDDEN, dtype=DTYPE) for rows in (TOKENS, OUTPUTS))
    out = linear(x, pack_weight(w, "bf16"))
    exact = x.double() @ w.double().T
    # a dot product summed in float32 in any order, then half an eps for rounding the output
    summed = HIDDEN * torch.finfo(torch.float32).eps * (x.double().abs() @ w.double().abs().T)
    bound = largest(summed + torch.finfo(DTYPE).eps / 2 * (exact.abs() + summed))
    return {"error": largest(out.double() - exact), "bound": bound}


def largest(of: torch.Tensor) -> float:
    return of.abs().max().item()


def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention [tokens, heads, head size] of one request, in float64."""
    keys, values = (each.double().repeat_interleave(HEADS // KV_HEADS, 1) for each in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q.double(), keys) / HEAD_SIZE**0.5
    future = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    shares = scores.masked_fill(future, float("-inf")).softmax(-1)
    return torch.einsum("hij,jhd->ihd", shares, values)


if __name__ == "__main__":
    sys.exit(main())
