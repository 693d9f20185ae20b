"""`hk` as a choice of SGLang's attention flags, and the user's other choices."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hk_sglang import flags, resolution
from sglang.srt.arg_groups import resolution_hooks
from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES
from sglang.srt.arg_groups.overrides import attention_backends_of, resolving_view
from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import ServerArgs, prepare_server_args

from tests.integration.hk_sglang.forked import forked

CHOICES = {
    "nothing": ({}, None),
    "hk": ({"attention_backend": "hk"}, None),
    "hk for prefill": ({"prefill_attention_backend": "hk"}, None),
    "hk for decode": ({"decode_attention_backend": "hk"}, None),
    "hk for prefill, beside": (
        {"prefill_attention_backend": "hk", "attention_backend": "flex_attention"},
        None,
    ),
    "another for decode": ({"decode_attention_backend": "flex_attention"}, None),
    "another": ({"attention_backend": "flex_attention"}, "flex_attention"),
    "another for prefill": ({"prefill_attention_backend": "triton"}, "triton"),
    "another for prefill, hk": (
        {"prefill_attention_backend": "triton", "attention_backend": "hk"},
        "triton",
    ),
}


@pytest.mark.parametrize(("given", "chosen"), CHOICES.values(), ids=CHOICES)
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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "attention"),
        ("linear", "linear,attention"),
        ("1", None),
        ("attention", None),
        ("linear,attention", None),
        ("attn", None),
    ],
)
def test_the_flag_asks_for_the_route(
    offered: list[str], monkeypatch: pytest.MonkeyPatch, before: str | None, after: str | None
) -> None:
    """With or without HK_BACKEND, for the processes that are started next, too."""
    if before:
        monkeypatch.setenv("HK_BACKEND", before)
    ServerArgs(model_path="dummy", attention_backend="hk").resolve_once()
    assert offered == ([after] if after else [])
    assert os.environ["HK_BACKEND"] == (after or before)


@pytest.mark.parametrize(
    "given",
    [
        {"attention_backend": "triton"},
        {"decode_attention_backend": "hk"},
        {"speculative_draft_attention_backend": "hk"},
    ],
    ids=str,
)
def test_no_such_flag_asks_for_nothing(offered: list[str], given: dict[str, str]) -> None:
    ServerArgs(model_path="dummy", **given).resolve_once()
    assert not offered
    assert "HK_BACKEND" not in os.environ


@pytest.mark.parametrize("users", [None, "linear"])
def test_a_flag_is_of_its_server_only(
    offered: list[str], monkeypatch: pytest.MonkeyPatch, users: str | None
) -> None:
    """A process that starts one server with it and then another one without."""
    if users:
        monkeypatch.setenv("HK_BACKEND", users)
    for given, value in (
        ({"attention_backend": "hk"}, f"{users},attention" if users else "attention"),
        ({}, users),
        ({"prefill_attention_backend": "hk"}, f"{users},attention" if users else "attention"),
        ({"attention_backend": "triton"}, users),
    ):
        ServerArgs(model_path="dummy", **given).resolve_once()
        assert os.environ.get("HK_BACKEND") == value


def test_a_choice_of_every_flag(offered: list[str]) -> None:
    """Taken out of what SGLang resolves; kept as it was given, in its children as well."""
    given = dict.fromkeys(flags.FLAGS, "hk")
    server_args = ServerArgs(model_path="dummy", **given)
    server_args.resolve_once()
    child = pickle.loads(pickle.dumps(server_args))
    for flag in flags.FLAGS:
        assert getattr(resolving_view(child), flag) is None
        assert getattr(child, flag) == "hk"


@pytest.fixture(scope="module")
def tiny_llama_config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with as much of a model as SGLang's arguments ask about."""
    folder = tmp_path_factory.mktemp("tiny")
    config = {
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
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def resolve(*arguments: str) -> Callable[[], Any]:
    """The backends of prefill and decode that SGLang comes to on this platform."""

    def work() -> Any:
        load_plugins()
        server_args = prepare_server_args(list(arguments))
        server_args.resolve_once()
        return attention_backends_of(resolving_view(server_args)), os.environ.get("HK_BACKEND")

    return work


@pytest.mark.parametrize(
    ("arguments", "backends"),
    [
        (["--attention-backend", "hk"], ("torch_native", "torch_native")),
        (
            ["--prefill-attention-backend", "hk", "--decode-attention-backend", "flex_attention"],
            ("torch_native", "flex_attention"),
        ),
        (
            ["--prefill-attention-backend", "hk", "--attention-backend", "flex_attention"],
            ("flex_attention", "flex_attention"),
        ),
    ],
    ids=["everything", "prefill", "prefill beside another"],
)
def test_on_the_command_line(
    tiny_llama_config: str, arguments: list[str], backends: tuple[str, str]
) -> None:
    """`hk` is accepted, and SGLang resolves as if the choice were its own: the parents' names."""
    base = ["--model-path", tiny_llama_config, "--device", "cpu"]
    done = forked(resolve(*base, *arguments))
    assert done.result == (backends, "attention")


def test_an_unknown_choice(tiny_llama_config: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = forked(resolve("--model-path", tiny_llama_config, "--attention-backend", "hkk"))
    assert done.exitcode == 2
    assert "invalid choice: 'hkk'" in capfd.readouterr().err


def test_with_hk_backend_0_the_choice_is_unknown(
    tiny_llama_config: str, capfd: pytest.CaptureFixture[str]
) -> None:
    work = resolve("--model-path", tiny_llama_config, "--attention-backend", "hk")
    assert forked(work, HK_BACKEND="0").exitcode == 2
    assert "invalid choice: 'hk'" in capfd.readouterr().err
