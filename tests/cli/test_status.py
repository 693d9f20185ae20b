"""`hk-backend status`: routes, device, engines, and the two times that decide each kind of layer.
`hk-backend tune`: it loads a model in the engine and shows the measurements."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hk_backend import __version__, machine
from hk_backend.cli import status, tune
from hk_backend.cli.app import app
from hk_backend.config import get_config
from hk_backend.engine.evidence.measuring import SECONDS, Budget
from hk_backend.measurements import folder
from hk_backend.measurements.machine import this_machine
from hk_backend.terms.measurements import MeasuredLayer, Measurements, Times
from hk_backend.terms.verdict import SERVED, Verdict, refused


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path) -> Iterator[None]:
    """A folder of measurements of the test's own, with the environment restored afterwards.

    The command changes variables. The test's `monkeypatch` is undone before this fixture ends, so
    the variables end as they began.
    """
    with pytest.MonkeyPatch.context() as patched:
        for name in (
            *("HK_BACKEND", "HK_CHECK", "HK_DEVICE", "HK_EVIDENCE", "HK_STRICT"),
            "HK_MEASURE_SECONDS",
        ):
            patched.setenv(name, "")
            patched.delenv(name)
        patched.setenv("HK_CACHE_DIR", str(tmp_path))
        get_config.cache_clear()
        yield
    get_config.cache_clear()


def shown(*options: str, exit_code: int = 0) -> str:
    get_config.cache_clear()
    result = CliRunner().invoke(app, ["status", *options])
    assert result.exit_code == exit_code, result.output
    return result.stdout


def report(exit_code: int = 0) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(shown("--json", exit_code=exit_code))
    return data


def test_versions_machine_device_and_routes() -> None:
    """A route that nobody asked for is off, with the reason."""
    data = report()
    assert set(data) == {"versions", "machine", "device", "routes", "notes", "evidence"}
    assert data["versions"]["torch"].startswith("2.")
    assert data["machine"]["cores"] >= 1
    assert data["device"]["name"].startswith("cpu:")
    assert data["device"]["on"] is True
    why = "not enabled: HK_BACKEND is unset or 0"
    assert data["routes"]["attention"] == {"on": False, "why": why}
    text = shown()
    assert "attention: off" in text
    assert "HK_BACKEND is unset or 0" in text
    version = CliRunner().invoke(app, ["--version"])
    assert (version.exit_code, version.stdout) == (0, f"hk-backend {__version__}\n")


@pytest.mark.parametrize(
    ("device", "verdicts", "why"),
    [
        (SERVED, {"vllm": SERVED}, ""),
        (SERVED, {}, "no supported engine is installed"),
        (SERVED, {"vllm": refused("vllm: it has no build()")}, "vllm: it has no build()"),
        (refused("no such device"), {"vllm": SERVED}, "no such device"),
    ],
)
def test_a_route_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, device: Verdict, verdicts: dict[str, Verdict], why: str
) -> None:
    """A route is on if the device can run and the engine is known."""
    monkeypatch.setenv("HK_BACKEND", "attention")
    monkeypatch.setattr(status, "engine_verdicts", lambda route: verdicts)
    monkeypatch.setattr(status, "resolve_device", lambda: ("hip", device))
    data = report()
    assert data["routes"]["attention"] == {"on": not why, "why": why}
    assert data["device"] == {"name": "hip", "on": device.ok, "why": device.why}


def test_bad_values_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad value is a route's reason in JSON, and one line in text. A foreign variable is a
    note."""
    monkeypatch.setenv("HK_BACKEND", "gemm")
    assert "HK_BACKEND='gemm' is not valid" in report(1)["routes"]["attention"]["why"]
    monkeypatch.delenv("HK_BACKEND")
    monkeypatch.setenv("HK_DEVICE", "gpu")
    text = shown(exit_code=1)
    (line,) = [line for line in text.splitlines() if "HK_DEVICE" in line]
    assert line.endswith("emulated:gfx950"), "the whole list of valid values"
    assert "route" not in text
    monkeypatch.delenv("HK_DEVICE")
    monkeypatch.setenv("HK_DEVIC", "hip")
    note = "HK_DEVIC is not a variable of hk_backend: did you mean HK_DEVICE?"
    assert report()["notes"] == [note]
    assert note in shown()


def test_an_engine_check_that_raises_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ImportError("libnuma.so.1: cannot open shared object file")

    entry = SimpleNamespace(name="vllm", load=fails)
    monkeypatch.setattr(machine, "version_of", lambda *names: "0.32.0")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])
    why = "vllm: ImportError: libnuma.so.1: cannot open shared object file"
    assert status.engine_verdicts("attention") == {"vllm": refused(why)}


def layer(operator: str, name: str, unmeasured: tuple[int, ...], **theirs: float) -> MeasuredLayer:
    """Measured times of a layer: HK takes 100 us. `theirs`: the engine's microseconds, by "m" and
    the number of rows."""
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


def add(*layers: MeasuredLayer, **changes: Any) -> None:
    here = this_machine("cpu").model_copy(update=changes)
    folder.add(Measurements(machine=here, layers=layers))


LAYER = layer("linear", "bf16 64x64", (), m1=200.0)


def test_every_kind_is_shown_with_both_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is measured, status shows the command to run. Afterwards it shows both times,
    and the settings that overrule them."""
    text = shown()
    assert "evidence     nothing yet: start the engine with HK_BACKEND=1" in text
    assert "hk-backend tune MODEL" in text
    add(*LAYERS, threads=3, processor=this_machine("cpu").processor)
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
    found = report()["evidence"]
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
    """Times of another machine or version are hidden, unless the user names their file."""
    add(*LAYERS, **{field: "another"})
    assert report()["evidence"]["kinds"] == []
    (path,) = tmp_path.glob("*.json")
    monkeypatch.setenv("HK_EVIDENCE", str(path))
    assert len(report()["evidence"]["kinds"]) == len(LAYERS)
    if field == "processor":
        assert "measured     another, " in shown()


def test_a_route_says_which_dtypes_are_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare `linear: on` would hide that HK computes no layer."""
    monkeypatch.setenv("HK_BACKEND", "1")
    monkeypatch.setattr(status, "engine_verdicts", lambda route: {"vllm": SERVED})

    def linear() -> str:
        (line,) = [each for each in shown().splitlines() if " linear: " in each]
        return line

    unknown = "who is faster computes a layer, by times taken when a model is first loaded"
    assert linear().endswith(f"on  {unknown}")
    add(*LAYERS)
    layers = [layer("linear", f"fp32 64x{n}", (), m1=90.0) for n in (64, 128)]
    add(*layers)
    assert linear().endswith(
        "on  measured here: bf16 HK (1 kind of layer), left to vLLM (1); "
        "fp32 left to vLLM (2 kinds of layer)"
    )
    monkeypatch.setenv("HK_EVIDENCE", "ignore")
    assert linear().endswith("on  every layer that HK covers")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """The models that a stand-in for the engine's plugin was asked to load, and its environment."""
    asked: list[dict[str, object]] = []

    def load(model: str, options: Sequence[str]) -> None:
        names = ("HK_BACKEND", "HK_EVIDENCE")
        environment = {name: os.environ.get(name) for name in names}
        asked.append({"model": model, "options": list(options), **environment})
        asked[-1]["budget"] = Budget().left
        add(LAYER)

    monkeypatch.setattr(tune, "loader", lambda engine: load)
    return asked


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["tune", *options])


def test_routes_that_the_user_names_are_measured_and_no_others(
    loaded: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HK_BACKEND", "linear")
    monkeypatch.setenv("HK_EVIDENCE", "ignore")
    assert run("model").exit_code == 0
    assert (loaded[0]["HK_BACKEND"], loaded[0]["HK_EVIDENCE"]) == ("linear", "measure")
    assert loaded[0]["budget"] == 60.0 > SECONDS


@pytest.mark.parametrize("again", [True, False])
def test_again_forgets_what_this_machine_has_measured(
    again: bool, loaded: list[dict[str, object]]
) -> None:
    add(LAYER.model_copy(update={"layer": "old"}))
    other = this_machine("cpu").model_copy(update={"processor": "another"})
    add(LAYER, processor="another")
    assert run(*["--again"] * again, "model").exit_code == 0
    names = {each.layer for each in folder.read(this_machine("cpu")).layers}
    assert names == ({"bf16 64x64"} if again else {"old", "bf16 64x64"})
    assert folder.read(other).layers


def test_a_named_device_is_in_the_way(
    loaded: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HK_DEVICE", "cpu")
    result = run("model")
    assert (result.exit_code, loaded) == (1, [])
    assert result.stderr == "HK_DEVICE=cpu names a device: nothing is measured; unset it\n"


@pytest.mark.parametrize(
    ("installed", "engine", "said"),
    [
        ((), "", "no engine is installed: HK can only be measured beside vLLM or SGLang"),
        ((), "vllm", "vllm is not installed: HK can only be measured beside the engine"),
        (("vllm", "sglang"), "", "--engine: several are installed: name one of vllm, sglang"),
        (("vllm",), "vlm", "--engine 'vlm' is not valid: expected vllm or sglang"),
    ],
)
def test_which_engine(
    installed: tuple[str, ...], engine: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(*names: str) -> str | None:
        return "1.0" if set(names) & set(installed) else None

    monkeypatch.setattr("hk_backend.machine.version_of", version)
    result = run(*(["--engine", engine] if engine else []), "model")
    assert (result.exit_code, result.stderr) == (1, f"{said}\n")


def test_what_the_engine_prints_is_not_in_the_document(
    loaded: list[dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (kind,) = json.loads(run("--json", "model").stdout)["kinds"]
    assert (kind["layer"], kind["by"]) == ("bf16 64x64", "HK")
    for path in folder.folder().glob("*.json"):
        path.unlink()
    capfd.readouterr()
    monkeypatch.setattr(tune, "loader", lambda engine: lambda *_: os.write(1, b"engine\n"))
    assert json.loads(run("--json", "model").stdout)["kinds"] == []
    assert capfd.readouterr() == ("", "engine\n")
