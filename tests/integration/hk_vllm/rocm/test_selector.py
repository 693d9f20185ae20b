"""vLLM's real ROCm selector, on a machine without a GPU, with and without the plugin."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest

from tests.integration.hk_vllm.rocm.pretending import answers_of
from tests.integration.hk_vllm.rocm.selector_cases import CASES, LAYERS, ROCM_BACKENDS

UNIFORM_BATCH = 2
"""AttentionCGSupport: graphs of uniform decode batches, the most that a routed builder may have."""


class Machine(NamedTuple):
    """`installed`: AITER is there; `enabled`: VLLM_ROCM_USE_AITER."""

    arch: str
    installed: bool
    enabled: bool


MACHINES = [
    Machine("gfx942", installed=False, enabled=False),
    Machine("gfx942", installed=True, enabled=True),
    Machine("gfx950", installed=True, enabled=False),
    Machine("gfx950", installed=True, enabled=True),
]

# What the automatic order must come to, by the rules of platforms/rocm.py and each class: a layer
# not named goes to ROCM_ATTN, which is first.
NO_AITER_FA = "sinks, without rocm_aiter_fa"
PASSED_OVER_BY_ROCM_ATTN = ("head 72", "sinks", "sinks, head 72", "kv connector", NO_AITER_FA)
ONLY_TRITON = ("int8 kv per token and head", "batch invariant")
NO_BACKEND = ("head 16", "block 24", "decode context parallel")


def automatic(machine: Machine, layer: str) -> str:
    """The backend of `layer` with no flag; empty if none takes it."""
    if layer in NO_BACKEND:
        return ""
    if layer in ONLY_TRITON:
        return "TRITON_ATTN"
    if layer not in PASSED_OVER_BY_ROCM_ATTN:
        return "ROCM_ATTN"
    if machine.enabled and "head 72" not in layer and layer != NO_AITER_FA:
        return "ROCM_AITER_FA"
    if machine.installed:
        return "ROCM_AITER_UNIFIED_ATTN"
    return "TRITON_ATTN"


@cache
def selections(machine: Machine) -> dict[str, dict[str, Any]]:
    """The answers of `selector_session` in a process of its own."""
    arguments = machine.arch, *["--aiter"] * machine.installed
    answers: dict[str, dict[str, Any]] = answers_of(
        "selector_session", *arguments, aiter=machine.enabled
    )
    return answers


@cache
def original_paths() -> dict[str, str]:
    """Registry member to its class in vLLM's source, whatever has been registered."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    return {name: AttentionBackendEnum[name].value for name in ROCM_BACKENDS}


@pytest.fixture(params=MACHINES, ids=lambda machine: "-".join(map(str, machine)))
def machine(request: pytest.FixtureRequest) -> Machine:
    chosen: Machine = request.param
    return chosen


def test_switched_off_nothing_differs(machine: Machine) -> None:
    answers = selections(machine)
    assert answers["off"] == answers["untouched"]
    paths = {answer.get("path") for answer in answers["off"].values()}
    assert set(original_paths().values()) <= paths


def test_automatic_order(machine: Machine) -> None:
    answers = selections(machine)
    for layer in [*LAYERS, NO_AITER_FA]:
        if layer == "mla":
            continue
        case = f"{layer} / no flag"
        member = automatic(machine, layer)
        if member:
            assert answers["untouched"][case]["path"] == original_paths()[member], case
        else:
            assert "No valid attention backend" in answers["untouched"][case]["error"], case


def test_wrapped_selections_are_the_same_with_hk_on_top(machine: Machine) -> None:
    """With no flag and with each backend's flag: HK's class over the one that vLLM chose."""
    answers = selections(machine)
    wrapped = set()
    for case, stock in answers["untouched"].items():
        found = answers["on"][case]
        if CASES[case].backend == "CUSTOM":
            continue  # compared with no flag below
        if "error" in stock or stock["path"] not in original_paths().values():
            assert found == stock, case
            continue
        assert_wraps(found, stock, case)
        wrapped.add(stock["path"])
    assert wrapped == set(original_paths().values())


def test_custom_is_what_no_flag_chooses(machine: Machine) -> None:
    answers = selections(machine)
    for layer in LAYERS:
        custom = answers["on"][f"{layer} / CUSTOM"]
        assert custom == answers["on"][f"{layer} / no flag"], layer
        assert "must be registered" in answers["off"][f"{layer} / CUSTOM"]["error"], layer


def assert_wraps(found: dict[str, Any], stock: dict[str, Any], case: str) -> None:
    """`found` is a class of HK's that differs from `stock` in builder and implementation only."""
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
