"""Attention kernels that read an FP8 cache: its scales, its codes, and irrelevant bytes."""

from __future__ import annotations

import math

import torch

from hk_backend.kernels import KernelEntry
from tests.kernels.attention_launch import Launch, bits, kernels, passes
from tests.ops.cases import Call, Case, make, paged

FP8 = ("e4m3",)
SCALES = ("off", "number", "one", "per head")
LSE_ERROR, CAP_ERROR = 2.0**-20, 2.0**-22
"""Relative errors: of a product of three float32 numbers, and of a capped score."""
NAN_CODES = (0x7F, 0xFF)
"""The codes of e4m3 that are NaN (OCP 8-bit Floating Point Specification, table 1)."""


@kernels(by_type=True, stored=FP8, k_scale=SCALES, v_scale=SCALES)
def test_scales(entry: KernelEntry, k_scale: str, v_scale: str) -> None:
    """A scale is of the whole cache or of a KV head, and is given as a number or read on the
    GPU."""
    case = Case(((70, 330), (9, 40)), 4, 2, k_scale=k_scale, v_scale=v_scale, seed=3)
    passes(Launch(entry, case))


@kernels(by_type=True, stored=FP8)
def test_scales_that_lie_apart(entry: KernelEntry) -> None:
    """The scales of other layers, NaN here, lie between the scales of this one."""
    case = Case(((40, 140),), 6, 3, k_scale="per head", v_scale="per head")
    call = make(Launch.fitting(entry, case))
    for name in ("k_scale", "v_scale"):
        call[name] = torch.stack([call[name], torch.full((3,), math.nan)], 1)[:, 0]
    launch = Launch.of(entry, call)
    launch.numbers |= {"key_scale_head": 2, "value_scale_head": 2}
    passes(launch)


@kernels(by_type=True, stored=FP8)
def test_every_code_of_a_value(entry: KernelEntry) -> None:
    """Subnormals, zeros of both signs and NaN are among the codes. With one key to see, and a score
    of zero, a row is the key's values."""
    call, _, values = call_of_all_codes(entry)
    call["query"].zero_()
    outcome = passes(Launch.of(entry, call))
    size = values.shape[2]
    found = outcome.out.float().view(len(values), size, size)
    expected = values.float().expand(found.shape)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@kernels(by_type=True, stored=FP8)
def test_every_code_of_a_key(entry: KernelEntry) -> None:
    """A query that is the unit vector of a channel has the key's element for a score."""
    call, keys, _ = call_of_all_codes(entry)
    outcome = passes(Launch.of(entry, call))
    scores = keys.double().flatten()
    assert len(scores.unique()) == 255 - len(NAN_CODES), "two are zero"
    cap_error = 0.0
    if cap := call.get("logits_soft_cap"):
        scores, cap_error = cap * torch.tanh(scores / cap), CAP_ERROR * cap
    error = (outcome.lse[0] - scores).abs()
    assert (error <= LSE_ERROR * scores.abs() + cap_error).all()


@kernels(by_type=True, stored=FP8)
def test_a_key_that_is_no_number(entry: KernelEntry) -> None:
    """A NaN among the keys leaves its rows without a softmax; others are exact."""
    call, keys, values = call_of_all_codes(entry)
    clean = passes(Launch.of(entry, call))
    size = keys.shape[2]
    finite = values[0, 0].float().isfinite()
    for code in NAN_CODES:
        poisoned, _, _ = call_of_all_codes(entry, first_key=code)
        poisoned["query"][:size] = 1
        outcome = Launch.of(entry, poisoned).run()
        assert outcome.findings == []
        assert outcome.out[:size, :, finite].float().isnan().all()
        assert torch.equal(bits(outcome.out[size:]), bits(clean.out[size:]))


@kernels(by_type=True, stored=FP8)
def test_what_no_sequence_owns_may_be_any_code(entry: KernelEntry) -> None:
    """Unowned places are the ends of last blocks and unused blocks. They hold every NaN."""
    call = make(Launch.fitting(entry, Case(((70, 333), (5, 65), (1, 1)), 2, 2, block_size=48)))
    clean = passes(Launch.of(entry, call))
    random = torch.Generator().manual_seed(5)
    cache = call["paged_kv"]
    for tensor in (cache.key.tensor, cache.value.tensor):
        codes = torch.tensor(NAN_CODES, dtype=torch.uint8)
        drawn = codes[torch.randint(len(codes), tensor.shape, generator=random)]
        unowned = tensor.float().isnan()
        assert unowned.any()
        stored = tensor.view(torch.uint8)
        stored.copy_(torch.where(unowned, drawn, stored))
    outcome = passes(Launch.of(entry, call))
    assert torch.equal(bits(outcome.out), bits(clean.out))
    assert torch.equal(bits(outcome.lse), bits(clean.lse))


def call_of_all_codes(
    entry: KernelEntry, first_key: int | None = None
) -> tuple[Call, torch.Tensor, torch.Tensor]:
    """A call with a request for each `head_size` of the 256 codes, and its keys and values.

    Each has one key and a query for each channel. The codes of no number are zero among the keys.
    """
    size = int(entry.facts["head_size"])
    requests = 256 // size
    case = Case(((size, 1),) * requests, 1, 1, causal=False, scale=1.0)
    case = Launch.fitting(entry, case)
    assert case.kv_dtype is not None
    assert case.layout is not None
    values = torch.arange(256, dtype=torch.uint8).view(case.kv_dtype).view(requests, 1, size)
    keys = torch.where(values.float().isfinite(), values.float(), 0.0).to(case.kv_dtype)
    if first_key is not None:
        keys.view(torch.uint8)[0, 0, 0] = first_key
    call = make(case)
    random = torch.Generator().manual_seed(1)
    call |= paged(keys, values, [1] * requests, case.layout, case.block_size, random)
    call["query"] = torch.eye(size, dtype=case.dtype).repeat(requests, 1)[:, None]
    return call, keys, values
