"""The folder of measurements: what is kept, ignored, merged, and said."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from hk_backend.config import get_config
from hk_backend.measurements import folder
from hk_backend.measurements.machine import build_of, this_machine
from hk_backend.terms.measurements import Machine, MeasuredLayer, Measurements, Times
from tests.forked import Programs

HERE = Machine(processor="CPU (R) 9000", torch="2.9", hk_backend="1.0", build="abc", threads=4)


def layer(name: str, ours: float = 1.0) -> MeasuredLayer:
    """A measured layer that differs from others by its name."""
    return MeasuredLayer(
        operator="linear",
        engine="vLLM",
        engine_version="1.0",
        device="cpu:avx2",
        layer=name,
        theirs="theirs",
        times=(Times(rows=1, ours=ours, theirs=2.0),),
    )


def of(*layers: MeasuredLayer, machine: Machine = HERE) -> Measurements:
    return Measurements(machine=machine, layers=layers)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own, which does not exist yet."""
    monkeypatch.setenv("HK_CACHE_DIR", str(tmp_path / "a" / "b"))
    get_config.cache_clear()
    folder._say_once.cache_clear()
    yield tmp_path / "a" / "b"
    get_config.cache_clear()


def test_what_is_added_is_read_and_the_folder_is_made(
    kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "hk_backend")
    assert folder.read(HERE) == of()
    assert not kept.exists(), "reading makes nothing"
    folder.add(of(layer("a")))
    folder.add(of(layer("b")))
    assert folder.read(HERE) == of(layer("a"), layer("b"))
    folder.add(of(layer("a", ours=3.0)))
    assert folder.read(HERE) == of(layer("a", ours=3.0), layer("b"))
    assert [path.suffix for path in sorted(kept.iterdir())] == [".json", ".lock"]
    assert not caplog.messages


def test_machines_have_files_of_their_own() -> None:
    others = [
        HERE.model_copy(update=update)
        for update in (
            {"processor": "CPU 9001"},
            {"torch": "2.10"},
            {"hk_backend": "1.1"},
            {"build": "def"},
            {"threads": 8},
            {"limits": ("ONEDNN_MAX_CPU_ISA=AVX2",)},
        )
    ]
    folder.add(of(layer("a")))
    for other in others:
        assert folder.read(other) == of(machine=other)
        folder.add(of(layer("b"), machine=other))
    assert folder.read(HERE) == of(layer("a"))
    assert len(list(folder.every())) == len(others) + 1


DAMAGE = {
    "not JSON": lambda text: "times",
    "empty": lambda text: "",
    "truncated": lambda text: text[: len(text) // 2],
    "a list": lambda text: f"[{text}]",
    "another format": lambda text: text.replace('"format": 1', '"format": 2'),
    "an unknown field": lambda text: text.replace('"format": 1', '"format": 1, "x": 1'),
    "a negative time": lambda text: text.replace('"ours": 1.0', '"ours": -1.0'),
    "a time that is text": lambda text: text.replace('"ours": 1.0', '"ours": "1.0"'),
    "an infinite time": lambda text: text.replace('"ours": 1.0', '"ours": Infinity'),
    "another machine's": lambda text: text.replace("9000", "9001"),
    "not UTF-8": lambda text: text.encode("utf-16"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_file_that_is_not_one_is_ignored_with_one_line_and_replaced(
    damage, caplog: pytest.LogCaptureFixture
) -> None:
    folder.add(of(layer("a")))
    path = folder.path_of(HERE)
    damaged = damage(path.read_text())
    assert damaged != path.read_text()
    path.write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
    assert folder.read(HERE) == of()
    assert folder.read(HERE) == of()
    assert len(caplog.messages) == 1
    assert str(path) in caplog.text
    assert "\n" not in caplog.messages[0]
    folder.add(of(layer("b")))
    assert folder.read(HERE) == of(layer("b"))


@pytest.mark.parametrize("what", ["a file where the folder is to be", "a folder under a file"])
def test_a_folder_that_cannot_be_written_is_one_line(
    what: str, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Permissions are no test: they do not bind a superuser."""
    blocking = kept if what.startswith("a file") else kept.parent
    blocking.parent.mkdir(parents=True, exist_ok=True)
    blocking.write_text("")
    folder.add(of(layer("a")))
    folder.add(of(layer("a")))
    assert folder.read(HERE) == of()
    assert len(caplog.messages) == 1
    assert "cannot be kept" in caplog.text


def test_a_lock_that_another_process_holds_is_waited_for_and_then_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(folder, "LOCK_SECONDS", 0)
    folder.add(of(layer("a")))
    with folder.FileLock(folder.path_of(HERE).with_suffix(".lock")):
        folder.add(of(layer("b")))
    assert folder.read(HERE) == of(layer("a"))
    assert "cannot be kept" in caplog.text


WRITER = """
import sys
from tests.measurements.test_folder import folder, layer, of
for number in range(25):
    folder.add(of(layer(f"{sys.argv[1]} {number}")))
"""


def test_two_processes_lose_nothing_of_each_other(programs: Programs) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(programs.check, WRITER), ("one", "two")))
    names = {each.layer for each in folder.read(HERE).layers}
    assert names == {f"{name} {number}" for name in ("one", "two") for number in range(25)}


def test_this_machine_names_its_threads_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    for name in ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    before = this_machine("cpu:avx2")
    assert before.threads == torch.get_num_threads()
    assert before.torch == torch.__version__
    assert before.limits == ()
    assert before.build == build_of("_cpu") != build_of("_hip")
    assert build_of("_no_such_extension") == "none"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert this_machine("cpu:avx2").limits == ("ONEDNN_MAX_CPU_ISA=AVX2",)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert this_machine("cpu:avx2").threads == 77
