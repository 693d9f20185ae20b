"""Interrupted runs go on: what is finished and whole is kept, what is damaged is written again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hk_backend.quantize import plan
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.job import Job
from hk_backend.quantize.source import Source
from tests.quantize.checkpoint import contents
from tests.quantize.interrupted import SMALL, Interrupted, settings, stop_after


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
