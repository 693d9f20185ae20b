"""Disk and memory: what is needed is told before, a full disk loses nothing, and memory holds a
shard, not a model."""

from __future__ import annotations

import errno
import json
import os
import shutil
import weakref
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from hk_backend.quantize import output, plan
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.job import Job
from hk_backend.quantize.source import Source
from tests.quantize.checkpoint import contents
from tests.quantize.interrupted import SMALL, Interrupted, settings, stop_after


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
