"""Files of records: what is written is read, and what is no record is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof import records
from tests.proof.records import Record, RecordError

RECORD = Record(
    check="test_gemm::test_zeros",
    subject="0123456789abcdef",
    test="1123456789abcdef",
    runtime="2123456789abcdef",
    cases=12,
    worst=0.345,
    seconds=1.5,
    date="2026-11-27",
    processor="AMD_EPYC",
    name="gemm_bf16_128x64",
)
OTHER = replace(RECORD, check="test_gemm::test_many_steps")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Files are sorted; a processor of many words is one word."""
    records.write("gemm", [RECORD, OTHER], tmp_path / "records")
    assert records.read(tmp_path / "records") == {RECORD.key: RECORD, OTHER.key: OTHER}
    gemm = (tmp_path / "records/gemm.txt").read_text()
    records.write("gemm", [OTHER, RECORD], tmp_path / "records")
    assert (tmp_path / "records/gemm.txt").read_text() == gemm
    records.write("gemm", [replace(RECORD, processor="Intel Xeon @ 2 GHz")], tmp_path)
    assert records.read(tmp_path)[RECORD.key].processor == "Intel_Xeon_@_2_GHz"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (RECORD.line().rpartition(" ")[0], "not a record"),
        (replace(RECORD, worst=1.01).line(), "did not pass"),
        (replace(RECORD, worst=float("nan")).line(), "did not pass"),
        (replace(RECORD, cases=-1).line(), "did not pass"),
        (RECORD.line().replace(" 12 ", " twelve "), "not a record"),
        (f"{RECORD.line()}\n{RECORD.line()}", "two records"),
    ],
)
def test_what_is_no_record(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "gemm.txt").write_text(f"{line}\n")
    with pytest.raises(RecordError, match=message):
        records.read(tmp_path)


def test_one_record_in_two_files(tmp_path: Path) -> None:
    for source in ("gemm", "attention"):
        records.write(source, [RECORD], tmp_path)
    with pytest.raises(RecordError, match="second record"):
        records.read(tmp_path)


def test_records_of_checks_that_are_gone_are_dropped(tmp_path: Path) -> None:
    records.write("gemm", [RECORD, OTHER], tmp_path)
    records.write("old", [replace(RECORD, subject="f" * 16)], tmp_path)
    records.keep({OTHER.key}, folder=tmp_path)
    assert records.read(tmp_path) == {OTHER.key: OTHER}
    assert [path.name for path in tmp_path.iterdir()] == ["gemm.txt"]
