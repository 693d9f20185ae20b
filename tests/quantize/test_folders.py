"""Folders to write into, and those refused: other people's, of other options, the model's own."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from hk_backend.quantize import output
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.job import Job
from tests.quantize.checkpoint import contents
from tests.quantize.interrupted import Interrupted, settings, stop_after


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"format": "mxfp4"}, "--format mxfp8, now it is --format mxfp4"),
        ({"activations": "none"}, "--activations quantized, now it is --activations none"),
        ({"ignore": ["model.layers.0.*"]}, r"no --ignore, now it is --ignore model.layers.0.\*"),
        ({"shard_bytes": 500_000}, "--shard-size 0.000262144, now it is --shard-size 0.0005"),
    ],
)
def test_other_options_are_refused(
    changed: dict[str, Any], named: str, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(Interrupted):
        Job(model, out, settings()).run(stop_after(0))
    before = contents(out)
    with pytest.raises(QuantizeError, match=named):
        Job(model, out, settings(**changed)).run()
    assert contents(out) == before


def test_other_options_for_a_finished_folder_are_refused(model: Path, tmp_path: Path) -> None:
    Job(model, tmp_path / "out", settings()).run()
    with pytest.raises(QuantizeError, match="--format mxfp8, now it is --format mxfp4"):
        Job(model, tmp_path / "out", settings(format="mxfp4")).run()


def test_a_model_that_changed_is_refused(writable: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        Job(writable, tmp_path / "out", settings()).run(stop_after(0))
    os.utime(writable / "model.safetensors", ns=(0, 1))
    with pytest.raises(QuantizeError, match="changed since"):
        Job(writable, tmp_path / "out", settings()).run()


@pytest.mark.parametrize("name", ["notes.txt", "config.json", "model.safetensors"])
def test_a_foreign_folder_is_refused(name: str, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("somebody's")
    with pytest.raises(QuantizeError, match="did not write it"):
        Job(model, out, settings()).run()
    assert contents(out) == {name: b"somebody's"}


def test_an_empty_folder_is_taken(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    Job(model, tmp_path / "out", settings()).run()
    assert (tmp_path / "out" / "config.json").exists()


def test_others_may_read_the_files(model: Path, tmp_path: Path) -> None:
    """All files have the mode that this process gives its files."""
    Job(model, tmp_path / "out", settings()).run()
    (tmp_path / "file").write_text("")
    mode = (tmp_path / "file").stat().st_mode
    assert {path.stat().st_mode for path in (tmp_path / "out").iterdir()} == {mode}


def test_a_damaged_report_is_refused(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for damaged in ("{", "[]", "{}"):
        (out / output.REPORT).write_text(damaged)
        with pytest.raises(QuantizeError, match=r"hk_quantize\.json is damaged"):
            Job(model, out, settings()).run()


def test_the_model_itself_is_refused(writable: Path) -> None:
    before = contents(writable)
    with pytest.raises(QuantizeError, match="must not be the model's"):
        Job(writable, writable / ".." / writable.name, settings())
    assert contents(writable) == before


def test_a_file_as_the_folder_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(QuantizeError, match="file is a file; expected a folder to write into"):
        Job(model, tmp_path / "file", settings()).run()


def test_two_runs_at_once_are_refused(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    handle = os.open(out, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(QuantizeError, match="another run"):
        Job(model, out, settings()).run()
    os.close(handle)  # as when the other process ends
    Job(model, out, settings()).run()
