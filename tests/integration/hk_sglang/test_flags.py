"""`hk` as a choice of SGLang's attention flags, and the user's other choices."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hk_sglang import flags, resolution
from sglang.srt.arg_groups import resolution_hooks
from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES
from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.server_args import ServerArgs

ALL, PREFILL_FLAG, DECODE_FLAG = (
    f"{part}attention_backend" for part in ("", "prefill_", "decode_")
)


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The choice in place; the values of HK_BACKEND that routes were registered under."""
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
    assert len(hooks[flags.FIRST_STEP]) == 1
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
        (ASKING, "attention", None),
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
    """With or without HK_BACKEND, for the processes that are started next, too; other flags ask for
    nothing."""
    if before:
        monkeypatch.setenv("HK_BACKEND", before)
    ServerArgs(model_path="dummy", **given).resolve_once()
    assert offered == ([after] if after else [])
    assert os.environ.get("HK_BACKEND") == (after or before)


@pytest.mark.parametrize("users", [None, "linear"])
def test_a_flag_is_of_its_server_only(
    offered: list[str], monkeypatch: pytest.MonkeyPatch, users: str | None
) -> None:
    """A process that starts one server with it and then another one without."""
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
    """Taken out of what SGLang resolves; kept as it was given, in its children as well."""
    server_args = ServerArgs(model_path="dummy", **dict.fromkeys(flags.FLAGS, "hk"))
    server_args.resolve_once()
    child = pickle.loads(pickle.dumps(server_args))
    for flag in flags.FLAGS:
        assert getattr(resolving_view(child), flag) is None
        assert getattr(child, flag) == "hk"
