"""The loading of the plugin: what it registers, and everything in which it must do no harm.

Other tests hold `hk` as a choice of SGLang's attention flags, and the engine that `hk-backend tune`
starts.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hk_sglang import load_once, resolution
from hk_sglang.resolution import FIRST_STEP
from sglang.srt.arg_groups import resolution_hooks
from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES
from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.arg_groups.resolution_hooks import _HOOKS
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import ServerArgs

from tests.integration.hk_sglang.forked import Done, forked


def load(before: Callable[[], Any]) -> Callable[[], list[Any]]:
    """Make a function that calls `before` and loads plugins twice.

    It returns how often the choice and its hook are there, and whether all factories are routed.
    """

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
    """SGLang's loader finds the plugin by its installed entry point."""
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
    """SGLang stays as it is, and the log has one line. With HK_STRICT=1 the process ends, although
    SGLang swallows the errors of plugins."""
    done = forked(load(before), **environment)
    assert done.result == [1, 1, False]
    (line,) = said(done)
    start = "ERROR sglang.hk_sglang.plugin hk_backend: SGLang serves without HK: "
    assert line.startswith(start + why)
    done = forked(load(before), HK_STRICT="1", **environment)
    assert done.exitcode == 1
    assert done.result is None
    assert f"HK_STRICT=1: {why}" in capfd.readouterr().err


# -- the flags

ALL, PREFILL_FLAG, DECODE_FLAG = (
    f"{part}attention_backend" for part in ("", "prefill_", "decode_")
)


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Offer the choice; the result lists each HK_BACKEND under which routes were registered."""
    hooks: dict[str, list[Any]] = {}
    monkeypatch.setattr(resolution_hooks, "_HOOKS", hooks)
    before = list(ATTENTION_BACKEND_CHOICES)
    monkeypatch.delenv("HK_BACKEND", raising=False)
    monkeypatch.setattr(resolution, "_asked", None)
    registered: list[str] = []
    monkeypatch.setattr(
        "hk_sglang.routes.register_routes", lambda: registered.append(os.environ["HK_BACKEND"])
    )
    resolution.offer()
    resolution.offer()
    assert len(hooks[FIRST_STEP]) == 1
    assert [*before, "hk"] == ATTENTION_BACKEND_CHOICES
    yield registered
    ATTENTION_BACKEND_CHOICES[:] = before
    os.environ.pop("HK_BACKEND", None)


ASKING = {ALL: "hk"}


@pytest.mark.parametrize(
    ("given", "before", "after"),
    [
        (ASKING, None, "attention"),
        (ASKING, "linear", "linear,attention"),
        (ASKING, "1", None),
        (ASKING, "linear,attention", None),
        (ASKING, "attn", None),
        ({ALL: "triton"}, None, None),
        ({DECODE_FLAG: "hk"}, None, None),
        ({"speculative_draft_attention_backend": "hk"}, None, None),
    ],
    ids=str,
)
def test_the_flag_asks_for_the_route(
    offered: list[str],
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    before: str | None,
    after: str | None,
) -> None:
    """A flag that names HK asks for the route, with HK_BACKEND or without, in child processes too.

    Other flags ask for nothing.
    """
    if before:
        monkeypatch.setenv("HK_BACKEND", before)
    ServerArgs(model_path="dummy", **given).resolve_once()
    assert offered == ([after] if after else [])
    assert os.environ.get("HK_BACKEND") == (after or before)


@pytest.mark.parametrize("users", [None, "linear"])
def test_a_flag_is_of_its_server_only(
    offered: list[str], monkeypatch: pytest.MonkeyPatch, users: str | None
) -> None:
    """A process may start one server with the flag, and then another one without."""
    if users:
        monkeypatch.setenv("HK_BACKEND", users)
    asked = f"{users},attention" if users else "attention"
    for given, value in (
        (ASKING, asked),
        ({}, users),
        ({PREFILL_FLAG: "hk"}, asked),
        ({ALL: "triton"}, users),
    ):
        ServerArgs(model_path="dummy", **given).resolve_once()
        assert os.environ.get("HK_BACKEND") == value


def test_a_choice_of_every_flag(offered: list[str]) -> None:
    """SGLang resolves its flags without the choice. The arguments keep it, in children too."""
    server_args = ServerArgs(model_path="dummy", **dict.fromkeys(resolution.FLAGS, "hk"))
    server_args.resolve_once()
    child = pickle.loads(pickle.dumps(server_args))
    for flag in resolution.FLAGS:
        assert getattr(resolving_view(child), flag) is None
        assert getattr(child, flag) == "hk"


# -- `hk-backend tune`, with a stand-in for the engine


def test_random_weights_and_the_servers_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        load_once.load_once("a/model", ["--no-such-option"])
    assert "--no-such-option" in capsys.readouterr().err
    made: list[Any] = []
    ended: list[bool] = []
    started = SimpleNamespace(shutdown=lambda: ended.append(True))
    engine = lambda *, server_args: made.append(server_args) or started  # noqa: E731
    monkeypatch.setattr(load_once, "Engine", engine)
    monkeypatch.setattr(load_once.ServerArgs, "from_cli_args", lambda given: given)
    options = ["--context-length", "64", "--dtype", "float16", "--load-format", "auto"]
    load_once.load_once("a/model", options)
    (arguments,) = made
    found = (arguments.model_path, arguments.context_length, arguments.dtype)
    assert found == ("a/model", 64, "float16")
    assert arguments.load_format == "dummy", "the last word is ours"
    assert arguments.disable_cuda_graph
    assert ended == [True]
