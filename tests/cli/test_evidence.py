"""`hk-backend status`: who computes which kind of layer here, and by which two times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hk_backend.cli import status
from hk_backend.cli.app import app
from hk_backend.config import get_config
from hk_backend.measurements import folder
from hk_backend.measurements.machine import this_machine
from hk_backend.terms.measurements import MeasuredLayer, Measurements, Times
from hk_backend.terms.verdict import SERVED


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("HK_BACKEND", "HK_DEVICE", "HK_EVIDENCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HK_CACHE_DIR", str(tmp_path))
    get_config.cache_clear()
    yield
    get_config.cache_clear()


def layer(operator: str, name: str, unmeasured: tuple[int, ...], **theirs: float) -> MeasuredLayer:
    """HK takes 100 us; `theirs`: the engine's microseconds by "m" and the number of rows."""
    times = tuple(
        Times(rows=int(rows[1:]), ours=100.0, theirs=each) for rows, each in theirs.items()
    )
    return MeasuredLayer(
        operator=operator,
        engine="vLLM",
        engine_version="0.32",
        device="cpu:avx2",
        layer=name,
        theirs="stock",
        times=times,
        unmeasured=unmeasured,
    )


LAYERS = (
    layer("linear", "bf16 64x64", (), m1=200.0, m8=90.0),
    layer("linear", "bf16 64x32", (8192,), m1=200.0, m8=2000.0),
    layer("attention", "2/1 heads of 64", (), m32=90.0, m128=200.0),
)


def keep(**changes: Any) -> None:
    here = this_machine("cpu").model_copy(update=changes)
    folder.add(Measurements(machine=here, layers=LAYERS))


def shown(*options: str) -> str:
    get_config.cache_clear()
    result = CliRunner().invoke(app, ["status", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def evidence() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown("--json"))["evidence"]
    return found


def test_every_kind_is_shown_with_both_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is measured, what to run; and where the user decides."""
    text = shown()
    assert "evidence     nothing yet: start the engine with HK_BACKEND=1" in text
    assert "hk-backend tune MODEL" in text
    keep(threads=3, processor=this_machine("cpu").processor)
    lines = shown().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("measured"))
    (path,) = folder.folder().glob("*.json")
    assert lines[first].endswith(f", 3 threads, vLLM 0.32, in {path}")
    assert lines[first + 1 :] == [
        "  rows: HK / the engine",
        "  attention 2/1 heads of 64 (vLLM: stock): by HK, but vLLM at 32 rows",
        "    32: 100 us / 90 us, 128: 100 us / 200 us",
        "  linear bf16 64x32 (vLLM: stock): by HK",
        "    1: 100 us / 200 us, 8: 100 us / 2 ms; took too long: 8192",
        "  linear bf16 64x64 (vLLM: stock): by vLLM",
        "    1: 100 us / 200 us, 8: 100 us / 90 us",
    ]
    found = evidence()
    assert found["overruled"] == ""
    assert [kind["by"] for kind in found["kinds"]] == ["HK, but vLLM at 32 rows", "HK", "vLLM"]
    left = found["kinds"][2]
    assert left["times"][1] == {"rows": 8, "ours": 100.0, "theirs": 90.0}
    assert left["why"].startswith("faster without HK: linear bf16 64x64: 8 rows")
    assert left["threads"] == 3
    overrules = {
        "HK_EVIDENCE": ("ignore", "not asked: HK_EVIDENCE=ignore"),
        "HK_DEVICE": ("cpu", "not asked: HK_DEVICE=cpu names a device"),
    }
    for variable, (value, said) in overrules.items():
        monkeypatch.setenv(variable, value)
        text = shown()
        assert said in text
        assert "by vLLM" in text
        monkeypatch.delenv(variable)


@pytest.mark.parametrize("field", ["processor", "torch", "hk_backend", "build"])
def test_what_another_machine_or_version_has_measured(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not shown, unless the user names its file."""
    keep(**{field: "another"})
    assert evidence()["kinds"] == []
    (path,) = tmp_path.glob("*.json")
    monkeypatch.setenv("HK_EVIDENCE", str(path))
    assert len(evidence()["kinds"]) == len(LAYERS)
    if field == "processor":
        assert "measured     another, " in shown()


def test_a_route_says_which_dtypes_are_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """`linear: on` alone would hide that no layer is HK's."""
    monkeypatch.setenv("HK_BACKEND", "1")
    monkeypatch.setattr(status, "engine_verdicts", lambda route: {"vllm": SERVED})

    def linear() -> str:
        (line,) = [each for each in shown().splitlines() if " linear: " in each]
        return line

    unknown = "who is faster computes a layer, by times taken when a model is first loaded"
    assert linear().endswith(f"on  {unknown}")
    keep()
    layers = [layer("linear", f"fp32 64x{n}", (), m1=90.0) for n in (64, 128)]
    folder.add(Measurements(machine=this_machine("cpu"), layers=layers))
    assert linear().endswith(
        "on  measured here: bf16 HK (1 kind of layer), left to vLLM (1); "
        "fp32 left to vLLM (2 kinds of layer)"
    )
    monkeypatch.setenv("HK_EVIDENCE", "ignore")
    assert linear().endswith("on  every layer that HK covers")
