"""vLLM's kernels for linear layers on its own ROCm platform, without a GPU: HK's first, and what
vLLM has behind it, untouched."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from hk_vllm.linear.kernels import KERNELS

from tests.integration.hk_vllm.rocm.pretending import answers_of
from tests.integration.shared.checkpoints import LAYERS
from tests.integration.shared.linear.devices import GFX950, unserved
from tests.integration.shared.linear.rotated import only_hk

AITER = pytest.mark.parametrize("aiter", [False, True], ids=["torch", "aiter"])
"""Whether AITER is there, and VLLM_ROCM_USE_AITER set."""
NAMES = [name for name in LAYERS if not name.startswith("hk-")]
OURS = {
    "block": "HKFp8BlockLinearKernel",
    "tensor": "HKFp8LinearKernel",
    "channel": "HKFp8LinearKernel",
}
"""By what shares a scale; of layers with quantised activations."""


@cache
def session(aiter: bool) -> dict[str, Any]:
    """The answers of `linear_session` in a process of its own."""
    arguments = ["--aiter"] if aiter else []
    found: dict[str, Any] = answers_of("linear_session", *arguments, aiter=aiter)
    return found


@AITER
def test_off_nothing_is_different(aiter: bool) -> None:
    assert session(aiter)["off"] == session(aiter)["untouched"]


@AITER
def test_first_in_every_list_and_the_rest_behind_it(aiter: bool) -> None:
    before, after = (session(aiter)[phase]["lists"] for phase in ("untouched", "on"))
    assert set(KERNELS) <= set(before)
    for name, kernels in before.items():
        ours = [KERNELS[name].__name__] if name in KERNELS else []
        assert after[name] == ours + kernels, name


@AITER
@pytest.mark.parametrize("name", NAMES)
def test_who_computes_a_layer(name: str, aiter: bool) -> None:
    """HK what gfx950 has kernels for; vLLM's own choice, or its error and HK's reason, the rest.

    Nobody a rotated layer that HK has no kernel for, whatever vLLM would choose."""
    checkpoint = LAYERS[name]
    stock, found = (session(aiter)[phase]["layers"][name] for phase in ("untouched", "on"))
    why = unserved(GFX950, checkpoint.scale_kind)
    if not why:
        weight_only = checkpoint.activations == "none"
        kernel = "HKWeightOnlyFp8LinearKernel" if weight_only else OURS[checkpoint.scale_kind]
        assert found == {"kernel": kernel}
    elif checkpoint.rotation:
        expected = only_hk(why, checkpoint.rotation, layer="model.qkv_proj")
        assert re.match(f"(?s)RotationError: {expected}", found["error"])
    elif "kernel" in stock:
        assert found == stock
    else:
        assert re.search(why, found["error"])
        for line in stock["error"].splitlines():
            assert line in found["error"]
