"""Controls of the engines' records: each way in which one may be out of date is red, by name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof import plugin, product_digest, records, source_digest
from tests.proof.engine_proof import EngineProof
from tests.proof.kernel_digest import digest
from tests.proof.records import Key, Record
from tests.proof.test_source_digest import change, forget
from tests.starts import VARIABLE

PLUGIN = "hk_vllm"
FILES = {
    "hk_vllm/__init__.py": "",
    "hk_vllm/plugin.py": "def go():\n    from hk_backend.routing import routes\n    routes()\n",
    "hk_backend/__init__.py": "",
    "hk_backend/routing.py": (
        '"""Routes."""\nfrom hk_backend.terms import LIMIT\n'
        "def routes():\n    return LIMIT  # all\n"
    ),
    "hk_backend/terms.py": "LIMIT = 3\n",
    "hk_backend/limits.json": "{}",
    "hk_backend/cli.py": "from hk_backend.routing import routes\n",
    "csrc/cpu/linear.cpp": "int rows() { return 3; }  // all\n",
    "csrc/emulator/wave.cpp": "int wave() { return 64; }\n",
}


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A product of a few files in place of the project's."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    packages = {name: tmp_path / name for name in (PLUGIN, "hk_backend")}
    monkeypatch.setattr(source_digest, "PACKAGES", packages)
    monkeypatch.setattr(product_digest, "CSRC", tmp_path / "csrc")
    yield tmp_path
    forget()
    product_digest.product_digest.cache_clear()


def digest_of_product() -> str:
    forget()
    product_digest.product_digest.cache_clear()
    return product_digest.product_digest("vllm")


@pytest.mark.parametrize(
    ("file", "old", "new", "matters"),
    [
        ("hk_vllm/plugin.py", "routes()\n", "routes() + 1\n", True),
        ("hk_backend/routing.py", "return LIMIT", "return -LIMIT", True),
        ("hk_backend/terms.py", "3", "4", True),
        ("hk_backend/limits.json", "{}", "[]", True),
        ("csrc/cpu/linear.cpp", "3", "4", True),
        ("hk_backend/routing.py", "Routes.", "All routes.", False),
        ("hk_backend/routing.py", "# all", "# every one", False),
        ("hk_backend/cli.py", "routes\n", "routes as all_routes\n", False),
        ("csrc/cpu/linear.cpp", "// all", "// every one", False),
        ("csrc/emulator/wave.cpp", "64", "32", False),
    ],
)
def test_a_change_matters_if_an_engine_serves_it(
    product: Path, file: str, old: str, new: str, matters: bool
) -> None:
    before = digest_of_product()
    change(product / file, old, new)
    assert (digest_of_product() != before) == matters


def test_another_version_of_the_engine(product: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of_product()
    monkeypatch.setattr(product_digest, "versions", lambda engine: ("0.99", "2.13"))
    assert digest_of_product() != before


def test_commands_and_quantisation_are_no_part_of_it() -> None:
    rooms = {".".join(name.split(".")[:2]) for name in product_digest.modules("vllm")}
    assert {"hk_vllm.attention", "hk_vllm.linear", "hk_backend.ops", "hk_backend.devices"} <= rooms
    assert not rooms & {
        "hk_backend.cli",
        "hk_backend.bench",
        "hk_backend.quantize",
        "hk_sglang.linear",
    }


# -- what pytest makes of them

FILE, TEST = "tests/integration/hk_vllm/e2e/test_singles.py", "test_without_hk_backend"
CHECK = f"hk_vllm/e2e/test_singles::{TEST}"
RECORD = Record(CHECK, "s", "t", "r", 2, 0.0, 9.0, "2026-11-27", "cpu", "backend-0")


def proof(name: str) -> EngineProof:
    """A case of FILE."""
    definitions = ((FILE.removesuffix(".py").replace("/", "."), TEST),)
    return EngineProof(Key(CHECK, digest(name)), name, "engine_vllm", "vllm", definitions)


def test_a_record_is_valid_while_test_and_product_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    case = proof("backend-0")
    record = replace(RECORD, subject=case.key.subject, test=case.test, runtime=case.runtime)
    assert case.why_invalid(record) == ""
    assert case.why_invalid(None) == "no record"
    assert case.why_invalid(replace(record, test="0" * 16)) == "its test has changed"
    monkeypatch.setattr(product_digest, "product_digest", lambda engine: "0" * 16)
    assert "the product, or the version" in case.why_invalid(record)


def test_records_that_are_missing_or_stale_are_red_and_start_nothing(tmp_path: Path) -> None:
    records.write("engine_vllm", [replace(RECORD, subject=digest("backend-0"))], tmp_path)
    starts = tmp_path / "starts"
    variables = {plugin.VARIABLE: plugin.RECORDS, plugin.FOLDER: str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{FILE}::{TEST}"],
        env={**os.environ, **variables, VARIABLE: str(starts)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{CHECK} of backend-0: its test has changed; run make prove" in done.stdout
    assert f"{CHECK} of backend-unset: no record; run make prove" in done.stdout
    assert "2 errors" in done.stdout
    assert not starts.exists()


MOST, SECONDS = plugin.SAMPLE_ENGINES, plugin.SAMPLE_ENGINE_SECONDS


@pytest.mark.parametrize(
    ("engines", "seconds", "wanted"),
    [(MOST, SECONDS, 1), (MOST + 1, SECONDS, 0), (MOST, SECONDS + 1, 0)],
)
def test_one_case_is_repeated_if_it_reads_few_engines_and_is_short(
    engines: int, seconds: float, wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [proof(name) for name in ("first", "second", "third")]
    few = replace(RECORD, cases=engines, seconds=seconds)
    known = [replace(few, subject=case.key.subject) for case in cases]
    records.write("engine_vllm", known, tmp_path)
    monkeypatch.setenv(plugin.FOLDER, str(tmp_path))
    judge = plugin.Proofs(plugin.RECORDS)
    assert len(judge._sample_of_engines(list(cases))) == wanted
    assert sum(len(judge._sample_of_engines([case])) for case in cases) == wanted, "by parts"
