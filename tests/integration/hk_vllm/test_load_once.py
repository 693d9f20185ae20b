"""`hk-backend tune` in vLLM: the engine that it starts, with a stand-in for the engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hk_vllm import load_once
from vllm import EngineArgs
from vllm.v1.engine.core_client import EngineCoreClient


def test_a_model_is_loaded_with_random_weights_and_the_servers_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[EngineArgs] = []
    ended: list[bool] = []
    core = SimpleNamespace(shutdown=lambda: ended.append(True))

    class Engine:
        @classmethod
        def from_engine_args(cls, arguments: EngineArgs) -> Any:
            made.append(arguments)
            return SimpleNamespace(llm_engine=SimpleNamespace(engine_core=core))

    monkeypatch.setattr(load_once, "LLM", Engine)
    options = ["--max-model-len", "64", "--dtype", "float16", "--load-format", "auto"]
    model = str(tmp_path)  # with HF_HUB_OFFLINE vLLM looks for the folder at once
    load_once.load_once(model, options)
    (arguments,) = made
    assert (arguments.model, arguments.max_model_len, arguments.dtype) == (model, 64, "float16")
    assert arguments.load_format == "dummy", "the last word is ours"
    assert arguments.enforce_eager
    assert ended == [True]


def test_an_unknown_option_is_the_engines_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_once.load_once("a/model", ["--no-such-option"])
    assert "--no-such-option" in capsys.readouterr().err


def test_the_engine_has_what_ends_it() -> None:
    assert callable(load_once.LLM.from_engine_args)
    assert callable(EngineCoreClient.shutdown)
