"""Files of records, and controls of their plugin: every false record is red, by name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.progress import Progress

from hk_backend.kernels import catalogue
from tests.processes import python
from tests.proof import plugin, product_digest, proofs, records
from tests.proof.kernel_digest import digest, kernel_digest
from tests.proof.plugin import Seen
from tests.proof.proofs import EMULATORS, EngineProof, SourceProof
from tests.proof.prover import Prover
from tests.proof.records import Key, Record, RecordError

RECORD = Record(
    check="test_gemm::test_zeros",
    subject="0123456789abcdef",
    test="1123456789abcdef",
    runtime="2123456789abcdef",
    cases=4,
    worst=0.8,
    seconds=1.5,
    date="2026-11-27",
    processor="AMD_EPYC",
    name="gemm_bf16_128x64",
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Files are sorted; a processor of many words is one word."""
    other = replace(RECORD, check="test_gemm::test_many_steps", processor="Intel Xeon @ 2 GHz")
    records.write("gemm", [RECORD, other], tmp_path)
    read = replace(other, processor="Intel_Xeon_@_2_GHz")
    assert records.read(tmp_path) == {RECORD.key: RECORD, other.key: read}
    text = (tmp_path / "gemm.txt").read_text()
    records.write("gemm", [other, RECORD], tmp_path)
    assert (tmp_path / "gemm.txt").read_text() == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (RECORD.line().rpartition(" ")[0], "not a record"),
        (replace(RECORD, worst=1.01).line(), "did not pass"),
        (replace(RECORD, worst=float("nan")).line(), "did not pass"),
        (replace(RECORD, cases=-1).line(), "did not pass"),
        (RECORD.line().replace(" 4 ", " four "), "not a record"),
        (f"{RECORD.line()}\n{RECORD.line()}", "two records"),
    ],
)
def test_what_is_no_record(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "gemm.txt").write_text(f"{line}\n")
    with pytest.raises(RecordError, match=message):
        records.read(tmp_path)


def test_records_that_are_missing_foreign_or_stale_are_red(tmp_path: Path) -> None:
    """The proofs of one small file run in a pytest of their own; the others are left out."""
    check, source = "test_quantize_fp8::test_wave_orders_are_bit_identical", "quantize"
    known = records.read_file(records.FOLDER / f"{source}.txt")
    found = {key: replace(each, seconds=plugin.SAMPLE_SECONDS) for key, each in known.items()}
    first, second, third, *_ = sorted(key for key in found if key.check == check)
    missing = found.pop(first)
    foreign = replace(found.pop(second), subject="0" * len(second.subject))
    stale = found[third] = replace(found[third], test="0" * 16)
    records.write(source, [*found.values(), foreign], tmp_path)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels/test_quantize_fp8.py")
    env = {**os.environ, plugin.VARIABLE: plugin.RECORDS, plugin.FOLDER: str(tmp_path)}
    done = python(*words, env=env)
    assert done.returncode == 1
    wanted = {missing: "no record", foreign: "no record", stale: "its test has changed"}
    for record, why in wanted.items():
        assert f"{check} of {record.name}: {why}" in done.stdout, done.stdout
    assert f"{len(wanted)} errors" in done.stdout
    assert "deselected" in done.stdout


@pytest.mark.parametrize(
    ("ran", "worst", "is_red"),
    [(4, 0.81, False), (5, 0.8, True), (4, 1.2, True)],
    ids=["agrees", "launches", "worst error"],
)
def test_a_repeat_that_differs_from_its_record_is_red(
    ran: int, worst: float, is_red: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "read", lambda folder: {RECORD.key: RECORD})
    monkeypatch.setattr(plugin.measured, "count_launches", lambda: None)
    judge = plugin.Proofs(plugin.RECORDS)
    first = {"check": RECORD.check, "subject": RECORD.subject, "name": RECORD.name}
    judge._compare(Seen(2, True, ran=ran, worst=worst, first=first))
    assert len(judge._different) == is_red
    for line in judge._different:
        assert f"{RECORD.check} of {RECORD.name}: {ran} cases ran, worst error {worst}" in line
        assert f"make prove FRESH=1 ONLY={RECORD.check}" in line


def test_an_engine_s_record_is_valid_while_test_and_product_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    definitions = (("tests.proof.records", "read"),)  # any
    key = Key("hk_vllm/e2e/test_it::test_it", digest("backend-0"))
    case = EngineProof(key, "backend-0", "engine_vllm", definitions, "vllm")
    record = replace(RECORD, check=key.check, subject=key.subject)
    record = replace(record, test=case.test, runtime=case.runtime)
    assert case.why_invalid(record) == ""
    assert case.why_invalid(None) == "no record"
    assert case.why_invalid(replace(record, test="0" * 16)) == "its test has changed"
    product_digest.product_digest.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(product_digest, "versions", lambda engine: ("0.99", "2.13"))
        assert "the product, or the version" in case.why_invalid(record)
    product_digest.product_digest.cache_clear()
    assert case.why_invalid(record) == ""


def test_an_emulator_s_record_is_valid_while_the_sources_that_it_names_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "csrc").mkdir()
    header, listing = tmp_path / "csrc" / "cache.hpp", tmp_path / "pairs.s"
    header.write_text("int size; // bytes\n")
    listing.write_text("v_nop\n")
    monkeypatch.setattr(proofs, "ROOT", tmp_path)
    monkeypatch.setattr(proofs, "_digest_of_sources", proofs._digest_of_sources.__wrapped__)
    definitions = (("tests.proof.records", "read"),)  # any
    key = Key("emulator/test_it::test_it", digest("gfx950"))
    case = SourceProof(key, "gfx950", EMULATORS, definitions, ("csrc", "pairs.s"))
    record = replace(RECORD, check=key.check, subject=key.subject)
    record = replace(record, test=case.test, runtime=case.runtime)
    header.write_text("int size; // of a line, in bytes\n")
    assert case.why_invalid(record) == ""
    header.write_text("long size;\n")
    assert case.why_invalid(record) == "the sources that it names have changed"
    header.write_text("int size;\n")
    listing.write_text("v_nop\ns_nop 0\n")
    assert case.why_invalid(record) == "the sources that it names have changed"
    with pytest.raises(ValueError, match=r"pairs\.txt is neither a file nor a folder of C"):
        _ = replace(case, sources=("pairs.txt",)).runtime


@pytest.mark.parametrize("outcomes", [(True, False), (False, True), (False, False)])
def test_a_record_is_of_all_cases_and_a_check_that_fails_loses_it(
    outcomes: tuple[bool, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(records.write, "__defaults__", (tmp_path,))
    case = {"check": RECORD.check, "subject": RECORD.subject, "name": RECORD.name, "of": 2}
    case |= {"test": RECORD.test, "runtime": RECORD.runtime, "source": "gemm"}
    case |= {"ran": 3, "worst": 0.5, "seconds": 1.0}

    def run(*outcomes: bool) -> None:
        prover = Prover(Progress(disable=True), {RECORD.key: 1.0}, 2)
        said = {"when": "call", "nodeid": "n", "user_properties": [(plugin.PROPERTY, case)]}
        for passed in outcomes:
            report: Any = SimpleNamespace(passed=passed, failed=not passed, **said)
            prover.pytest_runtest_logreport(report)

    run(True)
    assert records.read(tmp_path) == {}
    run(True, True)
    (record,) = records.read(tmp_path).values()
    assert (record.key, record.cases, record.seconds) == (RECORD.key, 6, 2.0)
    run(*outcomes)
    assert records.read(tmp_path) == {}


def test_every_shipped_kernel_is_proved() -> None:
    """The checks of each operator are about all of its kernels."""
    proved = {key.subject for key in records.read()}
    entries = [
        e
        for e in catalogue("gfx950").kernels
        if e.operator in ("gemm", "quantize_fp8", "quantize_mx")
    ]
    assert [entry.name for entry in entries if kernel_digest(entry) not in proved] == []
