"""The result that a call must return, and how far float32 arithmetic may stray from it.

No tolerance is chosen here: each is a first-order forward error bound of the definition
evaluated in float32 in any order, element by element, and one rounding to the output's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from hk_backend import reference
from hk_backend.devices import device_for
from hk_backend.ops import attention_prefill
from hk_backend.reference.attention import distance, requests, visible_keys, widened
from tests.ops.cases import Call, arguments, nan, output_of

BF16_PRODUCTS = ("cpu:avx512_bf16", "cpu:amx")
"""Devices whose processor multiplies bfloat16 itself."""
U = 2.0**-24
"""Unit roundoff of float32."""
ROUNDOFF = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""Unit roundoff of an output: half the distance from 1 to the next number."""
SMALLEST = {torch.float32: 2.0**-126, torch.float16: 2.0**-25, torch.bfloat16: 2.0**-126}
"""Absolute error near zero: flushed denormals, or (float16) half the smallest denormal."""
EXP_ERROR = 8 * U
"""Relative error that a vector exponential may have, its argument being exact."""
SMALLEST_TILE = 16
"""No kernel has key tiles narrower than this: how often an online softmax rescales."""


@dataclass(frozen=True)
class Expected:
    """The exact result of a call and the largest error allowed, element by element.

    `out`, `out_bound`: `[tokens, num_heads, value_size]`; `lse`, `lse_bound`: `[num_heads,
    tokens]`; `owned`: `[tokens]`, whether a request owns the row. All float64 (or bool).
    """

    out: torch.Tensor
    out_bound: torch.Tensor
    lse: torch.Tensor
    lse_bound: torch.Tensor
    owned: torch.Tensor


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread: two that wait for each other's small operations take longer."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rounded_weights(call: Call) -> torch.dtype:
    """The type in which the configured device hands softmax weights to the product with values.

    Host kernels round them to bfloat16 where the processor multiplies it and it holds the other
    operands (docs/cpu-kernels.md). GPU kernels have bounds of their own.
    """
    cache = call.get("paged_kv")
    stored = call["key"].dtype if cache is None else cache.dtype
    exact = call["query"].dtype == torch.bfloat16 and (
        stored.itemsize == 1 or stored == torch.bfloat16
    )
    multiplies = device_for("cpu").name in BF16_PRODUCTS
    return torch.bfloat16 if multiplies and exact else torch.float32


def expected(call: Call, weights_dtype: torch.dtype | None = None) -> Expected:
    """The reference's result and bounds: of the cpu device, or for weights in `weights_dtype`."""
    return expected_with(call, weights_dtype or rounded_weights(call))


@one_thread()
def expected_with(call: Call, weights_dtype: torch.dtype, in_parts: bool = False) -> Expected:
    """The reference's result of `call` and its bounds.

    `weights_dtype`: in which a kernel hands softmax weights to the product with the values; their
    sum it takes in float32. `in_parts`: the outputs of parts of the keys are rounded to the query's
    dtype before they are joined.
    """
    out, lse = reference.attention_prefill(arguments(call))
    out_bound, lse_bound = torch.zeros_like(out), torch.zeros_like(lse)
    owned = torch.zeros(len(out), dtype=torch.bool)
    query = call["query"]
    for tokens, keys, values in requests(arguments(call)):
        owned[tokens] = True
        bounds = _bounds(
            call, query[tokens], keys, values, out[tokens], lse[:, tokens], weights_dtype, in_parts
        )
        out_bound[tokens], lse_bound[:, tokens] = bounds
    error, smallest = ROUNDOFF[query.dtype], SMALLEST[query.dtype]
    out_bound += error * (out.abs() + out_bound) + smallest
    return Expected(out, out_bound, lse, lse_bound, owned)


def _bounds(
    call: Call,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    weights_dtype: torch.dtype,
    in_parts: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """How far float32 may stray in the output and the log-sum-exp of one request."""
    query_dtype = query.dtype
    keys = widened(keys, call["k_scale"], query.shape[1], torch.float64).transpose(0, 1)
    values = widened(values, call["v_scale"], query.shape[1], torch.float64).transpose(0, 1)
    scores, error = scores_of(call, query.double().transpose(0, 1), keys)
    behind = distance(len(query), keys.shape[1])
    hidden = ~visible_keys(behind, call["causal"], call["sliding_window"])
    scores = scores.masked_fill(hidden, -math.inf)
    if call["sinks"] is not None:  # a sink is a key whose value is zero
        sink = call["sinks"].double()[:, None, None].expand(-1, len(query), 1)
        scores, error = torch.cat([scores, sink], -1), torch.cat([error, U * sink.abs()], -1)
        zero = values.new_zeros(len(values), 1, values.shape[2])
        values = torch.cat([values, zero], 1)
    seen = scores > -math.inf
    weights = torch.where(seen, torch.exp(scores - lse[:, :, None]), 0.0)
    size = torch.where(seen, scores.abs(), 0.0)
    largest = size.amax(-1, keepdim=True) if size.shape[-1] else size.sum(-1, keepdim=True)
    rescales = scores.shape[-1] // SMALLEST_TILE + 1
    # exponent of a weight: its score, one subtraction of the maximum, the exponential; then every
    # rescaling is an exponential of a difference of maxima, which add up to 2 * largest
    error = error + 2 * U * (size + largest) + EXP_ERROR
    error = error + rescales * (EXP_ERROR + U) + 4 * U * largest
    error = torch.where(seen, error, 0.0)
    # sums of n terms in any order: n * U (Higham, Accuracy and Stability, section 4.2)
    summing = (scores.shape[-1] + rescales + 8) * U
    # weights w -> w (1 + e): o moves by sum(p e (v - o)) / sum(p (1 + e)); Cauchy-Schwarz makes
    # the sum of |v - o| a matrix product
    o = out.transpose(0, 1)
    strayed = weights * torch.expm1(error.clamp(max=300.0))
    total = strayed.sum(-1, keepdim=True)
    finite = values.masked_fill(~values.isfinite(), 0.0)
    spread = strayed @ finite**2 - 2 * o * (strayed @ finite) + o**2 * total
    moved = (total * spread.clamp(min=0.0)).sqrt()
    kept = (weights * torch.exp(-error)).sum(-1, keepdim=True).clamp(min=1e-300)
    flushed = 2.0**-125 * (1 + finite.abs().sum(1, keepdim=True))
    if weights_dtype != torch.float32:
        # each weight rounded on its own; the row's largest is at least 1 before normalisation
        moved = moved + ROUNDOFF[weights_dtype] * (weights * torch.exp(error)) @ finite.abs()
        moved = moved + SMALLEST[weights_dtype] * finite.abs().sum(1, keepdim=True)
    if in_parts:
        # a part's output is a mean of its values, and joined with the share of its weights
        share = (weights * torch.exp(error)) @ finite.abs()
        moved = moved + ROUNDOFF[query_dtype] * share + SMALLEST[query_dtype]
    bound = (moved + summing * (weights @ finite.abs() + o.abs())) / kept + flushed
    lse_bound = -kept.log() + summing + 8 * U * (lse.abs() + largest[..., 0] + 1)[..., None]
    alive = seen.any(-1, keepdim=True)
    bound = torch.where(alive, bound, 0.0)
    lse_bound = torch.where(alive, lse_bound, 0.0)[..., 0]
    return bound.transpose(0, 1), lse_bound


def scores_of(
    call: Call, query: torch.Tensor, keys: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores `[heads, queries, keys]` of one request, before masking, and their error bound."""
    head_size = query.shape[-1]
    scale = head_size**-0.5 if call["scale"] is None else call["scale"]
    scores = query @ keys.transpose(1, 2) * scale
    # a dot product in any order, and up to six roundings of its factors (scale, log2(e), k_scale)
    error = (head_size + 6) * U * abs(scale) * (query.abs() @ keys.abs().transpose(1, 2))
    cap = call["logits_soft_cap"]
    if cap:

        def capped(x: torch.Tensor) -> torch.Tensor:
            return cap * torch.tanh(x / cap)

        center = capped(scores)
        low, high = capped(scores - error), capped(scores + error)
        # tanh through an exponential: absolute error EXP_ERROR
        error = torch.maximum(high - center, center - low) + EXP_ERROR * cap
        scores = center
    if call["alibi_slopes"] is not None:
        behind = distance(query.shape[1], keys.shape[1])
        bias = -call["alibi_slopes"].double()[:, None, None] * behind
        scores = scores + bias
        error = error + 3 * U * bias.abs() + U * scores.abs()
    return scores, error


def check(
    call: Call, out: torch.Tensor | None = None, weights_dtype: torch.dtype | None = None
) -> None:
    """Run `call` and compare everything that it returns and writes with what is expected.

    `out`: where to write; it is filled with NaN first, and the rows that no request owns must
    still hold those very bytes afterwards.
    """
    if out is None:
        out = output_of(call)
    out.copy_(nan(*out.shape, dtype=out.dtype))
    untouched = out.clone()
    want = expected(call, weights_dtype)
    result = attention_prefill(**call, out=out, return_lse=True)
    assert isinstance(result, tuple)
    assert result[0] is out
    check_result(want, out, result[1], untouched)


def check_result(
    want: Expected, out: torch.Tensor, lse: torch.Tensor, untouched: torch.Tensor
) -> None:
    """Assert that a result is the expected one, and that foreign rows are `untouched`."""
    rest = ~want.owned
    assert torch.equal(_bytes(out[rest]), _bytes(untouched[rest])), "a foreign row was written"
    assert lse.dtype == torch.float32
    assert torch.equal(lse[:, rest], torch.full_like(lse[:, rest], -math.inf))
    owned = want.owned
    close("out", out[owned], want.out[owned], want.out_bound[owned])
    close("lse", lse.T[owned], want.lse.T[owned], want.lse_bound.T[owned])


def close(name: str, found: torch.Tensor, exact: torch.Tensor, bound: torch.Tensor) -> None:
    """Assert `|found - exact| <= bound`, and equality where `exact` is not finite."""
    assert found.shape == exact.shape
    found = found.double()
    finite = exact.isfinite()
    same = (found == exact) | (found.isnan() & exact.isnan())
    error = torch.where(finite, (found - exact).abs(), torch.where(same, 0.0, math.inf))
    excess = (error - torch.where(finite, bound, 0.0)).nan_to_num(nan=math.inf, posinf=math.inf)
    if excess.numel() == 0 or excess.max() <= 0:
        return
    worst = tuple(int(i) for i in torch.unravel_index(excess.argmax(), excess.shape))
    raise AssertionError(
        f"{name}{list(worst)} is {found[worst].item()!r}, exactly {exact[worst].item()!r}, "
        f"allowed error {bound[worst].item():.3g}; {int((excess > 0).sum())} of "
        f"{excess.numel()} elements are out of bounds"
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)
