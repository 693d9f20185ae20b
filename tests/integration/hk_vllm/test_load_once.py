"""`hk-backend tune` in vLLM: the engine that it starts, with a stand-in for the engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hk_vllm import load_once
from vllm.v1.engine.core_client import EngineCoreClient


def test_random_weights_and_the_servers_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Any] = []
    ended: list[bool] = []
    core = SimpleNamespace(shutdown=lambda: ended.append(True))
    started = SimpleNamespace(llm_engine=SimpleNamespace(engine_core=core))
    assert callable(load_once.LLM.from_engine_args)
    assert callable(EngineCoreClient.shutdown)
    engine = SimpleNamespace(from_engine_args=lambda given: made.append(given) or started)
    monkeypatch.setattr(load_once, "LLM", engine)
    options = ["--max-model-len", "64", "--dtype", "float16", "--load-format", "auto"]
    model = str(tmp_path)  # with HF_HUB_OFFLINE vLLM looks for the folder at once
    load_once.load_once(model, options)
    (arguments,) = made
    assert (arguments.model, arguments.max_model_len, arguments.dtype) == (model, 64, "float16")
    assert arguments.load_format == "dummy", "the last word is ours"
    assert arguments.enforce_eager
    assert ended == [True]
    with pytest.raises(SystemExit):
        load_once.load_once("a/model", ["--no-such-option"])
    assert "--no-such-option" in capsys.readouterr().err
