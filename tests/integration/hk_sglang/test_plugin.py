"""Loading the plugin: what it registers, and everything in which it must be harmless."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hk_sglang.flags import FIRST_STEP
from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES
from sglang.srt.arg_groups.resolution_hooks import _HOOKS
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.plugins import load_plugins

from tests.integration.hk_sglang.forked import Done, forked


def load(before: Callable[[], Any]) -> Callable[[], list[Any]]:
    """Load plugins, twice; how often the choice and its hook are there, and whether all of the
    factories are routed."""

    def work() -> list[Any]:
        before()
        load_plugins()
        load_plugins()
        return [
            ATTENTION_BACKEND_CHOICES.count("hk"),
            len(_HOOKS.get(FIRST_STEP, [])),
            all(hasattr(factory, "hk_original") for factory in ATTENTION_BACKENDS.values()),
        ]

    return work


def nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("value", "state"),
    [
        ("0", [0, 0, False]),
        ("", [1, 1, False]),
        ("linear", [1, 1, False]),
        ("attention", [1, 1, True]),
        ("1", [1, 1, True]),
    ],
)
def test_through_sglangs_own_loader(value: str, state: list[Any]) -> None:
    """By the installed entry point."""
    done = forked(load(nothing), HK_BACKEND=value)
    assert done.result == state
    assert not said(done)


def said(done: Done) -> list[str]:
    return [line for line in done.log if "hk_backend" in line]


def break_the_contract() -> None:
    AttentionBackend.forward_extend = lambda self, everything: None  # type: ignore[method-assign]


def break_the_installation() -> None:
    sys.modules["hk_backend.engine.strict"] = None  # type: ignore[assignment]
    sys.modules.pop("hk_sglang.attention.install", None)


@pytest.mark.parametrize(
    ("environment", "before", "why"),
    [
        ({"HK_BACKEND": "yes"}, nothing, "HK_BACKEND='yes' is not valid: expected 0, 1, or a"),
        (
            {"HK_BACKEND": "attention", "HK_DEVICE": "gpu"},
            nothing,
            "HK_DEVICE='gpu' is not valid",
        ),
        (
            {"HK_BACKEND": "attention"},
            break_the_contract,
            "SGLang is not one the plugin knows: break_the_contract.<locals>.<lambda>"
            "(self, everything), expected (self, q, k",
        ),
        (
            {"HK_BACKEND": "attention"},
            break_the_installation,
            "HK cannot be loaded: ModuleNotFoundError",
        ),
    ],
    ids=["route", "device", "contract", "broken"],
)
def test_what_is_in_the_way(
    capfd: pytest.CaptureFixture[str],
    environment: dict[str, str],
    before: Callable[[], Any],
    why: str,
) -> None:
    """One line in the log and SGLang as it is; with HK_STRICT=1 the process ends, although SGLang
    swallows what plugins raise."""
    done = forked(load(before), **environment)
    assert done.result == [1, 1, False]
    (line,) = said(done)
    start = "ERROR sglang.hk_sglang.plugin hk_backend: SGLang serves without HK: "
    assert line.startswith(start + why)
    done = forked(load(before), HK_STRICT="1", **environment)
    assert done.exitcode == 1
    assert done.result is None
    assert f"HK_STRICT=1: {why}" in capfd.readouterr().err
