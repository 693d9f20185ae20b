"""`hk` as a choice of SGLang's attention flags, and the user's other choices."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hk_sglang import flags, resolution
from sglang.srt.arg_groups import resolution_hooks
from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES
from sglang.srt.arg_groups.overrides import attention_backends_of, resolving_view
from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import ServerArgs, prepare_server_args

from tests.integration.hk_sglang.forked import forked

ALL, PREFILL_FLAG, DECODE_FLAG = (
    f"{part}attention_backend" for part in ("", "prefill_", "decode_")
)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, None),
        ({ALL: "hk"}, None),
        ({PREFILL_FLAG: "hk"}, None),
        ({DECODE_FLAG: "hk"}, None),
        ({PREFILL_FLAG: "hk", ALL: "flex_attention"}, None),
        ({DECODE_FLAG: "flex_attention"}, None),
        ({ALL: "flex_attention"}, "flex_attention"),
        ({PREFILL_FLAG: "triton"}, "triton"),
        ({PREFILL_FLAG: "triton", ALL: "hk"}, "triton"),
    ],
    ids=str,
)
def test_whose_prefill_is(given: dict[str, str], chosen: str | None) -> None:
    assert flags.prefill_choice(ServerArgs(model_path="dummy", **given)) == chosen


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


TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "torch_dtype": "float32",
}
"""As much of a model as SGLang's arguments ask about."""


def resolve(model: Path, *arguments: str) -> Callable[[], Any]:
    """The backends of prefill and decode that SGLang comes to on this platform."""
    (model / "config.json").write_text(json.dumps(TINY))
    given = ["--model-path", str(model), "--device", "cpu", *arguments]

    def work() -> Any:
        load_plugins()
        server_args = prepare_server_args(given)
        server_args.resolve_once()
        return attention_backends_of(resolving_view(server_args)), os.environ.get("HK_BACKEND")

    return work


PREFILL = ["--prefill-attention-backend", "hk"]


@pytest.mark.parametrize(
    ("arguments", "backends"),
    [
        (["--attention-backend", "hk"], ("torch_native", "torch_native")),
        (
            [*PREFILL, "--decode-attention-backend", "flex_attention"],
            ("torch_native", "flex_attention"),
        ),
        ([*PREFILL, "--attention-backend", "flex_attention"], ("flex_attention",) * 2),
    ],
    ids=["everything", "prefill", "prefill beside another"],
)
def test_on_the_command_line(
    tmp_path: Path, arguments: list[str], backends: tuple[str, str]
) -> None:
    """`hk` is accepted, and SGLang resolves as if the choice were its own: the parents' names."""
    assert forked(resolve(tmp_path, *arguments)).result == (backends, "attention")


@pytest.mark.parametrize(
    ("choice", "environment"), [("hkk", {}), ("hk", {"HK_BACKEND": "0"})], ids=str
)
def test_an_unknown_choice(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    choice: str,
    environment: dict[str, str],
) -> None:
    """As `hk` is with HK_BACKEND=0."""
    done = forked(resolve(tmp_path, "--attention-backend", choice), **environment)
    assert done.exitcode == 2
    assert f"invalid choice: '{choice}'" in capfd.readouterr().err
