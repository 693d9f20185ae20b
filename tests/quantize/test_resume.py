"""Interrupted runs go on, other people's folders stay, and memory holds a shard, not a model."""

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
from hk_backend.quantize.job import Job, Settings
from hk_backend.quantize.source import Source
from tests.quantize.checkpoint import contents

SMALL = 1 << 18
"""Bytes of a shard: two layers, or the embeddings, or the head."""


class Interrupted(Exception):
    pass


def stop_after(bytes_read: int) -> Any:
    """Progress that interrupts the run once so much of the source has been read."""
    done = 0

    def advance(name: str, count: int) -> None:
        nonlocal done
        done += count
        if done > bytes_read:
            raise Interrupted

    return advance


def settings(**changed: Any) -> Settings:
    return Settings(**{"format": "mxfp8", "shard_bytes": SMALL, **changed})


def test_an_interrupted_run_goes_on(model: Path, tmp_path: Path) -> None:
    """Finished shards are kept as they are, and the result is that of one uninterrupted run."""
    whole = Job(model, tmp_path / "whole", settings())
    whole.run()
    out = tmp_path / "out"
    job = Job(model, out, settings())
    with pytest.raises(Interrupted):
        job.run(stop_after(job.source_bytes - 8 * SMALL))
    assert not (out / "config.json").exists(), "half a checkpoint could be served"
    (out / "model-99999-of-99999.safetensors.part").write_bytes(b"half a file")
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.safetensors")}
    assert 2 <= len(before) < len(whole.plan.shards)
    read: list[str] = []
    Job(model, out, settings()).run(lambda name, count: read.append(name))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {path.name for path in before} <= set(read)
    assert contents(out) == contents(tmp_path / "whole")


def test_an_interrupted_shard_goes_on_at_its_last_piece(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small model is a single file: what was done of it is kept all the same."""
    one_file = settings(shard_bytes=1 << 30)
    whole = Job(model, tmp_path / "whole", one_file)
    whole.run()
    monkeypatch.setattr(plan, "PIECE_BYTES", SMALL)
    out = tmp_path / "out"
    job = Job(model, out, one_file)
    assert len(job.plan.shards) == 1
    assert len(job.plan.shards[0].pieces) > 4
    with pytest.raises(Interrupted):
        job.run(stop_after(job.source_bytes - 4 * SMALL))
    kept = list(out.glob("*.piece-*"))
    assert len(kept) >= 2
    assert not list(out.glob("*.safetensors"))
    assert re.fullmatch(r"0 of 1 files and \d+ of 21 layers kept", job.kept())
    read: list[str] = []
    original = Source.read
    monkeypatch.setattr(
        Source, "read", lambda self, name: read.append(name) or original(self, name)
    )
    Job(model, out, one_file).run()
    assert 0 < len(read) < len(job.source.tensors) - len(kept)
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("size", [3 * SMALL // 2, 1 << 30], ids=["other pieces", "a single piece"])
def test_pieces_of_another_size_start_again(
    size: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of the command may cut the same shard elsewhere."""
    one_file = settings(shard_bytes=1 << 30)
    Job(model, tmp_path / "whole", one_file).run()
    monkeypatch.setattr(plan, "PIECE_BYTES", SMALL)
    out = tmp_path / "out"
    job = Job(model, out, one_file)
    with pytest.raises(Interrupted):
        job.run(stop_after(job.source_bytes - 4 * SMALL))
    assert len(list(out.glob("*.piece-*"))) >= 2
    monkeypatch.setattr(plan, "PIECE_BYTES", size)
    read: list[str] = []
    original = Source.read
    monkeypatch.setattr(
        Source, "read", lambda self, name: read.append(name) or original(self, name)
    )
    Job(model, out, one_file).run()
    assert sorted(read) == sorted(job.source.tensors)
    assert contents(out) == contents(tmp_path / "whole")


def test_a_damaged_piece_is_written_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_file = settings(shard_bytes=1 << 30)
    monkeypatch.setattr(plan, "PIECE_BYTES", SMALL)
    job = Job(model, tmp_path / "out", one_file)
    with pytest.raises(Interrupted):
        job.run(stop_after(job.source_bytes // 2))
    first = min((tmp_path / "out").glob("*.piece-*"))
    first.write_bytes(first.read_bytes()[:-7])
    with pytest.raises(QuantizeError, match=r"a piece of model-00001.*is damaged"):
        Job(model, tmp_path / "out", one_file).run()
    Job(model, tmp_path / "out", one_file).run()
    Job(model, tmp_path / "whole", one_file).run()
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_damaged_shard_is_written_again(model: Path, tmp_path: Path) -> None:
    job = Job(model, tmp_path / "out", settings())
    job.run()
    expected = contents(tmp_path / "out")
    first, second = (tmp_path / "out" / shard.file for shard in job.plan.shards[:2])
    first.write_bytes(first.read_bytes()[:-7])
    second.unlink()
    Job(model, tmp_path / "out", settings()).run()
    assert contents(tmp_path / "out") == expected


def test_progress_counts_the_whole_model(model: Path, tmp_path: Path) -> None:
    for _ in range(2):  # written, and taken up when all is there
        counted: list[int] = []
        job = Job(model, tmp_path / "out", settings())
        job.run(lambda name, count, counted=counted: counted.append(count))
        assert sum(counted) == job.source_bytes


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


@pytest.mark.parametrize("shard_bytes", [SMALL // 2, 1 << 30])
def test_a_finished_folder_needs_no_work(
    shard_bytes: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the size of its files: nothing is read, and every file stays as it is."""
    out = tmp_path / "out"
    Job(model, out, settings()).run()
    before = contents(out)
    monkeypatch.setattr(Source, "read", lambda *args: pytest.fail("a tensor was read"))
    again = Job(model, out, settings(shard_bytes=shard_bytes))
    again.run()
    assert contents(out) == before
    assert {shard.file for shard in again.plan.shards} == {
        path.name for path in out.glob("*.safetensors")
    }


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


def test_a_disk_too_small_is_told_before(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    job = Job(model, tmp_path / "out", settings())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, job.plan.nbytes - 1))
    with pytest.raises(QuantizeError, match=f"{job.plan.nbytes:,} bytes are needed"):
        job.run()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, job.plan.nbytes))
    job.run()


def test_pieces_on_the_disk_are_not_wanted_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard in pieces takes twice its size while they are joined; what is there is there."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(plan, "PIECE_BYTES", SMALL)
    out = tmp_path / "out"
    job = Job(model, out, settings(shard_bytes=1 << 30))
    with pytest.raises(Interrupted):
        job.run(stop_after(job.source_bytes - 4 * SMALL))
    kept = sum(path.stat().st_size for path in out.glob("*.piece-*"))
    enough = 2 * job.plan.nbytes - kept
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, enough - 1))
    with pytest.raises(QuantizeError, match=f"{enough:,} bytes are needed"):
        Job(model, out, settings(shard_bytes=1 << 30)).run()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, enough))
    Job(model, out, settings(shard_bytes=1 << 30)).run()


def test_a_finished_folder_wants_no_disk_space(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of joining pieces either."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(plan, "PIECE_BYTES", SMALL)
    one_file = settings(shard_bytes=1 << 30)
    Job(model, tmp_path / "out", one_file).run()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 0))
    Job(model, tmp_path / "out", one_file).run()


def test_pieces_of_a_whole_file_do_not_stay(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was interrupted between writing the file and removing its pieces."""
    monkeypatch.setattr(plan, "PIECE_BYTES", SMALL)
    out, one_file = tmp_path / "out", settings(shard_bytes=1 << 30)

    def interrupt(path: Path) -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", interrupt)
        with pytest.raises(Interrupted):
            Job(model, out, one_file).run()
    assert list(out.glob("*.safetensors"))
    assert list(out.glob("*.piece-*"))
    Job(model, out, one_file).run()
    assert not list(out.glob("*.piece-*"))
    assert (out / "config.json").exists()


def test_a_disk_that_fills_up(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The half-written file goes away and the run can go on."""
    out, calls = tmp_path / "out", 0
    save_file = output.save_file

    def full(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save_file(tensors, path, metadata)

    monkeypatch.setattr(output, "save_file", full)
    with pytest.raises(QuantizeError, match=r"00003.*the disk is full.*to resume from here"):
        Job(model, out, settings()).run()
    assert not list(out.glob("*.part"))
    assert len(json.loads((out / output.REPORT).read_text())["shards"]) == 2
    Job(model, out, settings()).run()
    Job(model, tmp_path / "whole", settings()).run()
    assert contents(out) == contents(tmp_path / "whole")


def test_memory_holds_a_shard(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source tensors that are alive at once: those of one output shard, not those of the model."""
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most, read = 0, Source.read

    def watched(self: Source, name: str) -> torch.Tensor:
        nonlocal most
        tensor = read(self, name)
        alive.add(tensor)
        most = max(most, sum(part.nbytes for part in alive))
        return tensor

    monkeypatch.setattr(Source, "read", watched)
    job = Job(model, tmp_path / "out", settings())
    job.run()
    largest = max(tensor.nbytes for tensor in job.source.tensors.values())
    assert largest <= most <= largest + 2 * SMALL < job.source_bytes / 2
