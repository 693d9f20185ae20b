"""Reading a decoded thread trace, and assembling its listing again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hk_backend.lab.timing.hardware.assembly import kernel_of
from hk_backend.lab.timing.hardware.dispatch import DispatchError, Launch, read
from hk_backend.lab.toolchain import compiler
from tests.lab.timing.hardware.made import ARCH, FIRST, TURNS


def test_what_is_read(folder: Path) -> None:
    found = read(folder)
    assert found.clock_ghz == 2.0
    assert found.engines == [0]
    [waves] = found.workgroups(0)
    assert [(wave.simd, wave.begin) for wave in waves] == [(n, FIRST + 4 * n) for n in range(4)]
    assert found.lines[0].is_label
    names = [found.lines[line].mnemonic for line in waves[0].steps["line"]]
    assert names.count("s_barrier") == TURNS
    assert (waves[0].steps["clocks"] >= waves[0].steps["stall"]).all()


def test_workgroups_of_a_cu_begin_apart(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "two"))
    for path in sorted(folder.glob("se0*.json")):
        text = re.sub(r'"begin": (\d+)', lambda m: f'"begin": {int(m[1]) + 120}', path.read_text())
        (copy / path.name.replace("_sl0_", "_sl1_")).write_text(text)
    first, second = read(copy).workgroups(0)
    assert len(first) == len(second) == 4
    assert second[0].begin == first[0].begin + 120


def test_what_ran_on_the_xcd(folder: Path, tmp_path: Path) -> None:
    """Rows of [clock, CU, SIMD, slot, begins, dispatch]; CUs of two engines may have one number."""
    assert read(folder).launch is None
    copy = Path(shutil.copytree(folder, tmp_path / "occupied"))
    rows = {
        "0": [[0, 5, 0, 0, 1, 1], [4, 5, 1, 0, 1, 1], [9, 5, 0, 0, 0, 1], [9, 6, 0, 0, 1, 1]],
        "1": [[0, 5, 0, 0, 1, 1]],
        "version": "made",
    }
    (copy / "occupancy.json").write_text(json.dumps(rows))
    assert read(copy).launch == Launch(waves=4, compute_units=3)


def test_a_wave_that_was_not_traced_to_its_end_is_left_out(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "cut"))
    path = copy / "se0_sm2_sl0_wv0.json"
    content = json.loads(path.read_text())
    del content["wave"]["instructions"][-1]
    path.write_text(json.dumps(content))
    assert [wave.simd for wave in read(copy).waves] == [0, 1, 3]


WAVE = "se0_sm0_sl0_wv0.json"
BEYOND = '{"wave": {"instructions": [[0, 0, 0, 4, 999]], "simd": 0, "slot": 0, "begin": 0}}'
"""A wave with an instruction beyond the listing."""


def without_waves(folder: Path) -> None:
    for path in folder.glob("se0*.json"):
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "code.json").unlink(), "code.json: No such file"),
        (lambda folder: (folder / "code.json").write_text("{"), "code.json is no JSON"),
        (lambda folder: (folder / "code.json").write_text("[]"), "code.json is not a decoder's"),
        (lambda folder: (folder / WAVE).write_text('{"wave": {}}'), f"{WAVE} is not a decoder's"),
        (lambda folder: (folder / WAVE).write_text(BEYOND), f"{WAVE} is not a decoder's"),
        (lambda folder: (folder / "realtime.json").write_text("[1]"), "realtime.json is not"),
        (lambda folder: (folder / "occupancy.json").write_text("[1]"), "occupancy.json is not"),
        (without_waves, "has no whole wave"),
    ],
)
def test_what_is_no_dispatch(
    damage: Callable[[Path], None], message: str, folder: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "damaged"))
    damage(copy)
    with pytest.raises(DispatchError, match=message):
        read(copy)


def test_a_listing_of_another_assembler_is_refused(folder: Path) -> None:
    """An instruction of another length would shift all that follow."""
    lines = list(read(folder).lines)
    assert kernel_of(lines, ARCH, compiler.find()).arch == ARCH
    del lines[3]
    with pytest.raises(DispatchError, match="when assembled, and at"):
        kernel_of(lines, ARCH, compiler.find())
