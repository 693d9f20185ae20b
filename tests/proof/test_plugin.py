"""Controls of the records: each way in which one may be false is red, by name.

The proofs of one small file run in a pytest of their own, on records that were tampered with.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from hk_backend.kernels import KernelEntry, catalogue
from tests.kernels.test_gemm_mutants import entry_with
from tests.proof import plugin, records
from tests.proof.kernel_digest import kernel_digest
from tests.proof.kernel_proof import KernelProof
from tests.proof.plugin import Seen
from tests.proof.records import Key, Record

FILE, SOURCE = "tests/kernels/test_quantize_fp8.py", "quantize"
CHECK = "test_quantize_fp8::test_wave_orders_are_bit_identical"
LONG = plugin.SAMPLE_SECONDS / 2
"""Seconds in a record of which the sample has room for two."""


def run(folder: Path, known: Iterable[Record], *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest on the proofs of FILE, with these records in place of the repository's."""
    records.write(SOURCE, known, folder)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", FILE, *arguments],
        env={**os.environ, plugin.VARIABLE: plugin.RECORDS, plugin.FOLDER: str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def known_records() -> dict[Key, Record]:
    return records.read_file(records.FOLDER / f"{SOURCE}.txt")


def test_with_its_records_nothing_fails_and_most_is_left_out(tmp_path: Path) -> None:
    long = (replace(record, seconds=LONG) for record in known_records().values())
    done = run(tmp_path, long)
    assert done.returncode == 0, done.stdout
    assert "deselected" in done.stdout


def test_records_that_are_missing_foreign_or_stale_are_red(tmp_path: Path) -> None:
    found = {key: replace(each, seconds=LONG) for key, each in known_records().items()}
    first, second, third, *_ = sorted(key for key in found if key.check == CHECK)
    missing = found.pop(first)
    foreign = replace(found.pop(second), subject="0" * len(second.subject))
    stale = found[third] = replace(found[third], test="0" * 16)
    done = run(tmp_path, [*found.values(), foreign])
    assert done.returncode == 1
    wanted = {
        missing.name: "no record",
        foreign.name: "no record",
        stale.name: "its test has changed",
    }
    for name, why in wanted.items():
        assert f"{CHECK} of {name}: {why}" in done.stdout, done.stdout
    assert f"{len(wanted)} errors" in done.stdout


@pytest.mark.parametrize(
    ("ran", "worst", "is_red"),
    [(4, 0.81, False), (5, 0.8, True), (4, 1.2, True)],
    ids=["agrees", "launches", "worst error"],
)
def test_a_repeat_that_differs_from_its_record_is_red(
    ran: int, worst: float, is_red: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record("test_it::test_it", "k", "t", "e", 4, 0.8, 1.0, "2026-11-27", "cpu", "kernel")
    monkeypatch.setattr(records, "read", lambda folder: {record.key: record})
    monkeypatch.setattr(plugin.measured, "count_launches", lambda: None)
    judge = plugin.Proofs(plugin.RECORDS)
    first = {"check": record.check, "subject": record.subject, "name": record.name}
    judge._compare(Seen(2, True, ran=ran, worst=worst, first=first))
    assert len(judge._different) == is_red
    for line in judge._different:
        assert f"test_it::test_it of kernel: {ran} cases ran, worst error {worst}" in line
        assert "make prove FRESH=1 ONLY=test_it::test_it" in line


def proof_of(entry: KernelEntry) -> KernelProof:
    function = CHECK.rpartition("::")[2]
    key = Key(CHECK, kernel_digest(entry))
    return KernelProof(key, entry.name, SOURCE, entry, "tests.kernels.test_quantize_fp8", function)


def test_a_record_of_a_kernel_whose_byte_was_flipped_is_none(tmp_path: Path) -> None:
    entry = catalogue("gfx950").kernel("quantize_fp8_token_bf16")
    code = bytearray(entry.code_object())
    known = known_records()
    assert proof_of(entry).why_invalid(known.get(proof_of(entry).key)) == ""
    for place in range(0x1000, len(code) - 0x400, 256):  # some of them are the kernel's
        code[place] ^= 4
    other = proof_of(entry_with(entry, bytes(code), tmp_path / "quantize.hsaco"))
    assert other.why_invalid(known.get(other.key)) == "no record"


def test_every_shipped_kernel_is_proved() -> None:
    """The checks of each operator are about all of its kernels."""
    known = records.read()
    proved = {key.subject for key in known}
    entries = [e for e in catalogue("gfx950").kernels if e.operator in ("gemm", "quantize_fp8")]
    left = [entry.name for entry in entries if kernel_digest(entry) not in proved]
    assert left == []
