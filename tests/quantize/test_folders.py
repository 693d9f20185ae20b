"""Folders to write into and those refused, interrupted runs that are resumed, and the disk and
memory that a run takes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import weakref
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from hk_backend.quantize import output, plan
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.job import Job
from hk_backend.quantize.output import as_option
from hk_backend.quantize.settings import Settings
from hk_backend.quantize.source import Source
from tests.quantize.checkpoint import Interrupted, contents, finished, stop_after

SMALL = 1 << 18
"""Bytes of a shard: two layers, or the embeddings, or the head."""
SHARDS, ONE_FILE = (Settings("mxfp8", shard_bytes=size) for size in (SMALL, 1 << 30))


@pytest.fixture(scope="session")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, dict[str, bytes]]:
    """The files that uninterrupted runs have written, by the size of a shard."""
    made = {}
    for settings in (SHARDS, ONE_FILE):
        out = tmp_path_factory.mktemp("whole") / "out"
        finished(model, out, settings)
        made[settings.shard_bytes] = contents(out)
    return made


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model is a single file, written in pieces of this size."""
    monkeypatch.setattr(plan, "PIECE_BYTES", SMALL)


def interrupted(model: Path, out: Path, settings: Settings, left: int) -> Job:
    """A run that was interrupted with so many bytes of the model left to read."""
    job = Job(model, out, settings)
    with pytest.raises(Interrupted):
        job.run(stop_after(job.source_bytes - left))
    return job


def noted_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read, original = [], Source.read
    monkeypatch.setattr(
        Source, "read", lambda self, name: read.append(name) or original(self, name)
    )
    return read


# -- folders


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"format": "mxfp4"}, "--format mxfp8, now it is --format mxfp4"),
        ({"activations": "none"}, "--activations quantized, now it is --activations none"),
        ({"ignore": ["model.layers.0.*"]}, r"no --ignore, now it is --ignore model.layers.0.\*"),
        ({"shard_bytes": 500_000}, "--shard-size 0.000262144, now it is --shard-size 0.0005"),
        ({"head": "fp8"}, "--head 16, now it is --head fp8"),
    ],
)
def test_other_options_are_refused(
    changed: dict[str, Any], named: str, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    job = interrupted(model, out, SHARDS, 1 << 30)
    before, other = contents(out), Settings(**{"format": "mxfp8", "shard_bytes": SMALL} | changed)
    with pytest.raises(QuantizeError, match=named):
        Job(model, out, other).run()
    assert contents(out) == before
    job.run()
    if "shard_bytes" not in changed:  # it does not matter for a finished folder
        with pytest.raises(QuantizeError, match=named):
            Job(model, out, other).run()


def test_a_model_that_changed_is_refused(writable: Path, tmp_path: Path) -> None:
    interrupted(writable, tmp_path / "out", SHARDS, 1 << 30)
    os.utime(writable / "model.safetensors", ns=(0, 1))
    with pytest.raises(QuantizeError, match="changed since"):
        Job(writable, tmp_path / "out", SHARDS).run()


@pytest.mark.parametrize("name", ["notes.txt", "config.json", "model.safetensors"])
def test_a_foreign_folder_is_refused(name: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text("somebody's")
    with pytest.raises(QuantizeError, match="did not write it"):
        Job(model, tmp_path, SHARDS).run()
    assert contents(tmp_path) == {name: b"somebody's"}


def test_what_no_folder_is(writable: Path, tmp_path: Path) -> None:
    before = contents(writable)
    with pytest.raises(QuantizeError, match="must not be the model's"):
        Job(writable, writable / ".." / writable.name, SHARDS)
    assert contents(writable) == before
    (tmp_path / "file").write_text("")
    with pytest.raises(QuantizeError, match="file is a file; expected a folder to write into"):
        Job(writable, tmp_path / "file", SHARDS).run()
    (tmp_path / "out").mkdir()
    for damaged in ("{", "[]", "{}"):
        (tmp_path / "out" / output.REPORT).write_text(damaged)
        with pytest.raises(QuantizeError, match=r"hk_quantize\.json is damaged"):
            Job(writable, tmp_path / "out", SHARDS).run()


def test_two_runs_at_once_are_refused(model: Path, tmp_path: Path) -> None:
    """An empty folder is taken, and others may read what comes: files have this process's mode."""
    out = tmp_path / "out"
    out.mkdir()
    handle = os.open(out, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(QuantizeError, match="another run"):
        Job(model, out, SHARDS).run()
    os.close(handle)  # the end of the other process
    finished(model, out, SHARDS)
    (tmp_path / "file").write_text("")
    mode = (tmp_path / "file").stat().st_mode
    assert {path.stat().st_mode for path in out.iterdir()} == {mode}


# -- interrupted runs


def test_an_interrupted_run_goes_on(
    model: Path, tmp_path: Path, whole: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished or damaged, the shards end as those of one uninterrupted run. Progress counts the
    whole model each time."""
    out = tmp_path / "out"
    job = interrupted(model, out, SHARDS, 8 * SMALL)
    assert not (out / "config.json").exists(), "half a checkpoint could be served"
    (out / "model-99999-of-99999.safetensors.part").write_bytes(b"half a file")
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.safetensors")}
    assert 2 <= len(before) < len(job.plan.shards)
    told: dict[str, int] = {}

    def go_on(settings: Settings = SHARDS) -> None:
        told.clear()
        again = Job(model, out, settings)
        again.run(lambda name, count: told.update({name: told.get(name, 0) + count}))
        assert sum(told.values()) == job.source_bytes
        assert contents(out) == whole[SMALL]
        files = {path.name for path in out.glob("*.safetensors")}
        assert {shard.file for shard in again.plan.shards} == files

    go_on()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {path.name for path in before} <= set(told)
    first, second = (out / shard.file for shard in job.plan.shards[:2])
    first.write_bytes(first.read_bytes()[:-7])
    second.unlink()
    go_on()
    # a finished folder needs no work, whatever the size of its files
    monkeypatch.setattr(Source, "read", lambda *args: pytest.fail("a tensor was read"))
    for size in (SMALL // 2, SMALL, 1 << 30):
        go_on(Settings("mxfp8", shard_bytes=size))


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(
    "size", [SMALL, 3 * SMALL // 2, 1 << 30], ids=["", "other pieces", "a single piece"]
)
def test_an_interrupted_shard_goes_on_at_its_last_piece(
    size: int, model: Path, tmp_path: Path, whole: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version of the command that cuts the same shard elsewhere starts it again."""
    out = tmp_path / "out"
    job = interrupted(model, out, ONE_FILE, 4 * SMALL)
    assert len(job.plan.shards[0].pieces) > 4
    kept = list(out.glob("*.piece-*"))
    assert len(kept) >= 2
    assert not list(out.glob("*.safetensors"))
    assert re.fullmatch(r"0 of 1 files and \d+ of 21 layers kept", job.kept())
    monkeypatch.setattr(plan, "PIECE_BYTES", size)
    read = noted_reads(monkeypatch)
    finished(model, out, ONE_FILE)
    if size == SMALL:
        assert 0 < len(read) < len(job.source.tensors) - len(kept)
    else:
        assert sorted(read) == sorted(job.source.tensors)
    assert contents(out) == whole[1 << 30]


@pytest.mark.usefixtures("pieces")
def test_a_damaged_piece_is_written_again(
    model: Path, tmp_path: Path, whole: dict[Any, Any]
) -> None:
    job = interrupted(model, tmp_path, ONE_FILE, 8 * SMALL)
    first = min(tmp_path.glob("*.piece-*"))
    first.write_bytes(first.read_bytes()[:-7])
    with pytest.raises(QuantizeError, match=r"a piece of model-00001.*is damaged"):
        Job(model, tmp_path, ONE_FILE).run()
    job.run()
    assert contents(tmp_path) == whole[1 << 30]


@pytest.mark.usefixtures("pieces")
def test_pieces_of_a_whole_file_do_not_stay(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was interrupted between writing the file and removing its pieces."""

    def interrupt(path: Path) -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", interrupt)
        interrupted(model, tmp_path, ONE_FILE, -1)
    assert list(tmp_path.glob("*.safetensors"))
    assert list(tmp_path.glob("*.piece-*"))
    finished(model, tmp_path, ONE_FILE)
    assert not list(tmp_path.glob("*.piece-*"))


# -- disk and memory


def leave(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Pretend that the disk has this space."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, free))


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("settings", [SHARDS, ONE_FILE], ids=["shards", "pieces"])
def test_a_disk_too_small_is_told_before(
    settings: Settings, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard in pieces takes twice its size while they are joined; existing ones are counted."""
    job, out = Job(model, tmp_path / "out", settings), tmp_path / "out"
    enough = job.plan.nbytes
    if settings == ONE_FILE:
        interrupted(model, out, settings, 4 * SMALL)
        enough = 2 * enough - sum(path.stat().st_size for path in out.glob("*.piece-*"))
    leave(monkeypatch, enough - 1)
    with pytest.raises(QuantizeError, match=f"{enough:,} bytes are needed"):
        Job(model, out, settings).run()
    leave(monkeypatch, enough)
    finished(model, out, settings)
    leave(monkeypatch, 0)
    finished(model, out, settings)


def test_a_disk_that_fills_up(
    model: Path, tmp_path: Path, whole: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half-written file goes away and the run can go on."""
    calls, save_file = 0, output.save_file

    def full(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save_file(tensors, path, metadata)

    monkeypatch.setattr(output, "save_file", full)
    with pytest.raises(QuantizeError, match=r"00003.*the disk is full.*to resume from here"):
        Job(model, tmp_path, SHARDS).run()
    assert not list(tmp_path.glob("*.part"))
    assert len(json.loads((tmp_path / output.REPORT).read_text())["shards"]) == 2
    finished(model, tmp_path, SHARDS)
    assert contents(tmp_path) == whole[SMALL]


def test_memory_holds_a_shard(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source tensors alive at once are those of one output shard, not those of the model."""
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most, read = 0, Source.read

    def watched(self: Source, name: str) -> torch.Tensor:
        nonlocal most
        tensor = read(self, name)
        alive.add(tensor)
        most = max(most, sum(part.nbytes for part in alive))
        return tensor

    monkeypatch.setattr(Source, "read", watched)
    job = finished(model, tmp_path, SHARDS)
    largest = max(tensor.nbytes for tensor in job.source.tensors.values())
    assert largest <= most <= largest + 2 * SMALL < job.source_bytes / 2


def test_a_text_is_called_by_the_head_of_its_digest() -> None:
    assert as_option("calibration", "0123456789abcdef") == "--text (sha256 0123456789ab)"
    assert as_option("activations", "mx") == "--activations quantized"
    assert as_option("activations", "mxfp8") == "--activations mxfp8"
