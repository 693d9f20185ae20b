"""vLLM's own ROCm platform, on a machine without a GPU, with and without the plugin.

Tests hold the attention backends that it selects, and its kernels for linear layers. HK's kernels
come first among those.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

import pytest
from hk_vllm.linear.kernel_lists import KERNELS
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from tests.integration.hk_vllm.rocm.platform_session import CASES, CUSTOM, NO_FLAG, ROCM_BACKENDS
from tests.integration.hk_vllm.rocm.pretending import answers_of
from tests.integration.shared.checkpoints import LAYERS
from tests.integration.shared.linear.devices import GFX950, unserved
from tests.integration.shared.linear.rotated import only_hk

UNIFORM_BATCH = 2
"""AttentionCGSupport's graphs of uniform decode batches, the most that HK's builders may have."""
ORIGINAL = {AttentionBackendEnum[name].value for name in ROCM_BACKENDS}
"""The classes in vLLM's source, whatever has been registered."""


class Machine(NamedTuple):
    """A machine's GPU; `aiter`: AITER is there, and VLLM_ROCM_USE_AITER is set."""

    arch: str
    aiter: bool


MACHINES = [Machine("gfx942", True), Machine("gfx950", False), Machine("gfx950", True)]
on_each = pytest.mark.parametrize("machine", MACHINES, ids=lambda of: "-".join(map(str, of)))
on_gfx950 = pytest.mark.parametrize("machine", MACHINES[1:], ids=["torch", "aiter"])
NAMES = [name for name in LAYERS if not name.startswith("hk-")]
OURS = {
    "block": "HKFp8BlockLinearKernel",
    "tensor": "HKFp8LinearKernel",
    "channel": "HKFp8LinearKernel",
}
"""HK's kernels for layers with quantised activations, by what shares a scale."""
OURS_IN_MX = {
    "mxfp4": "HKMxfp4LinearKernel",
    "mxfp6_e2m3": "HKMxfp6LinearKernel",
    "mxfp6_e3m2": "HKMxfp6LinearKernel",
    "mxfp8": "HKMxfp8LinearKernel",
}
"""The same in MX formats, by the weight's."""


@cache
def found_on(machine: Machine) -> dict[str, dict[str, Any]]:
    """The answers of `platform_session` in a process of its own."""
    arguments = machine.arch, *["--aiter"] * machine.aiter
    found: dict[str, dict[str, Any]]
    found = answers_of("platform_session", *arguments, aiter=machine.aiter)
    return found


@on_each
def test_switched_off_nothing_differs(machine: Machine) -> None:
    found = found_on(machine)
    assert found["off"] == found["untouched"]
    assert {answer.get("path") for answer in found["off"]["selected"].values()} >= ORIGINAL


@on_each
def test_a_worker_s_sleep_is_watched(machine: Machine) -> None:
    found = found_on(machine)
    assert not found["off"]["watches sleep"]
    assert found["on"]["watches sleep"]


@on_each
def test_wrapped_selections_are_the_same_with_hk_on_top(machine: Machine) -> None:
    """HK's class lies over vLLM's choice, with no flag and with each backend's flag.

    CUSTOM is what vLLM chooses without a flag.
    """
    wrapped = set()
    selections = {phase: of["selected"] for phase, of in found_on(machine).items()}
    for layer, flag in CASES:
        case = f"{layer} / {flag}"
        found, stock = selections["on"][case], selections["untouched"][case]
        if flag == CUSTOM:
            assert found == selections["on"][f"{layer} / {NO_FLAG}"], layer
            assert "must be registered" in selections["off"][case]["error"], layer
        elif "error" in stock or stock["path"] not in ORIGINAL:
            assert found == stock, case
        else:
            assert_wraps(found, stock, case)
            wrapped.add(stock["path"])
    assert wrapped == ORIGINAL


def assert_wraps(found: dict[str, Any], stock: dict[str, Any], case: str) -> None:
    """Hold that `found` is HK's class, and like `stock` but for builder and implementation."""
    assert "error" not in found, f"{case}: {found}"
    for part in ("backend", "builder", "impl"):
        assert found[part][0].startswith("hk_vllm."), case
        own = [path for path in found[part] if not path.startswith("hk_vllm.")]
        assert own == stock[part], f"{case}: {part}"
    # the runner finds the class again by its module and name
    assert found["backend"][0] == found["path"], case
    assert found["graphs"] == min(stock["graphs"], UNIFORM_BATCH), case
    for key in ("name", "writes_in_forward", "block_sizes", "layouts"):
        assert found[key] == stock[key], f"{case}: {key}"


# -- linear layers


@on_gfx950
def test_first_in_every_list_and_the_rest_behind_it(machine: Machine) -> None:
    before, after = (found_on(machine)[phase]["lists"] for phase in ("untouched", "on"))
    assert set(KERNELS) <= set(before)
    for name, kernels in before.items():
        ours = [KERNELS[name].__name__] if name in KERNELS else []
        assert after[name] == ours + kernels, name


@on_gfx950
@pytest.mark.parametrize("name", NAMES)
def test_who_computes_a_layer(machine: Machine, name: str) -> None:
    """HK computes each layer that gfx950 has kernels for. The others are vLLM's: it computes them
    by its own choice, or stops with an error and HK's reason.

    A rotated layer without a kernel of HK's is an error, whatever vLLM would choose.
    """
    checkpoint = LAYERS[name]
    stock, found = (found_on(machine)[phase]["layers"][name] for phase in ("untouched", "on"))
    why = unserved(GFX950, checkpoint)
    if not why:
        alone = checkpoint.activations == "none"
        of_fp8 = "HKWeightOnlyFp8LinearKernel" if alone else OURS.get(checkpoint.scale_kind)
        assert found == {"kernel": OURS_IN_MX.get(checkpoint.format) or of_fp8}
    elif checkpoint.rotation:
        expected = only_hk(why, checkpoint.rotation, layer="model.qkv_proj")
        assert re.match(f"(?s)RotationError: {expected}", found["error"])
    elif "kernel" in stock:
        assert found == stock
    else:
        assert re.search(why, found["error"])
        for line in stock["error"].splitlines():
            assert line in found["error"]
