"""`hk-backend tune` in SGLang: the engine that it starts, with a stand-in for the engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hk_sglang import load_once


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
