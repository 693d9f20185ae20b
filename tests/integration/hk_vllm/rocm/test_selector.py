"""vLLM's real ROCm selector, on a machine without a GPU, with and without the plugin."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from tests.integration.hk_vllm.rocm.pretending import answers_of
from tests.integration.hk_vllm.rocm.selector_session import CASES, CUSTOM, NO_FLAG, ROCM_BACKENDS

UNIFORM_BATCH = 2
"""AttentionCGSupport: graphs of uniform decode batches, the most that a routed builder may have."""
ORIGINAL = {AttentionBackendEnum[name].value for name in ROCM_BACKENDS}
"""The classes in vLLM's source, whatever has been registered."""


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

Selections = dict[str, dict[str, Any]]


@cache
def selections_of(machine: Machine) -> Selections:
    """The answers of `selector_session` in a process of its own."""
    arguments = machine.arch, *["--aiter"] * machine.installed
    answers: Selections = answers_of("selector_session", *arguments, aiter=machine.enabled)
    return answers


@pytest.fixture(params=MACHINES, ids=lambda machine: "-".join(map(str, machine)))
def selections(request: pytest.FixtureRequest) -> Selections:
    return selections_of(request.param)


def test_switched_off_nothing_differs(selections: Selections) -> None:
    assert selections["off"] == selections["untouched"]
    assert {answer.get("path") for answer in selections["off"].values()} >= ORIGINAL


def test_wrapped_selections_are_the_same_with_hk_on_top(selections: Selections) -> None:
    """With no flag and with each backend's flag: HK's class over the one that vLLM chose. CUSTOM is
    what no flag chooses."""
    wrapped = set()
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
