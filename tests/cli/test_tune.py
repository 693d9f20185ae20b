"""`hk-backend tune`: loads a model in the engine, and shows what was measured meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hk_backend.cli import tune
from hk_backend.cli.app import app
from hk_backend.config import get_config
from hk_backend.engine.evidence.measuring import SECONDS, Budget
from hk_backend.measurements import folder
from hk_backend.measurements.machine import this_machine
from hk_backend.terms.measurements import MeasuredLayer, Measurements, Times
from tests.models import ROOT


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path) -> Iterator[None]:
    """A folder of its own. The command changes the environment of the process that it is.

    The test's `monkeypatch` is undone before this: the variables end as they began.
    """
    with pytest.MonkeyPatch.context() as patched:
        for name in ("HK_BACKEND", "HK_DEVICE", "HK_EVIDENCE", "HK_MEASURE_SECONDS"):
            patched.setenv(name, "")
            patched.delenv(name)
        patched.setenv("HK_CACHE_DIR", str(tmp_path))
        get_config.cache_clear()
        yield
    get_config.cache_clear()


LAYER = MeasuredLayer(
    operator="linear",
    engine="vLLM",
    engine_version="1.0",
    device="cpu:avx2",
    layer="bf16 64x64",
    theirs="stock",
    times=(Times(rows=1, ours=1.0, theirs=2.0),),
)


def keep(layer: MeasuredLayer = LAYER) -> None:
    folder.add(Measurements(machine=this_machine("cpu"), layers=(layer,)))


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """The models that a stand-in for a plugin was asked to load, and in which environment."""
    asked: list[dict[str, object]] = []

    def load(model: str, options: Sequence[str]) -> None:
        names = ("HK_BACKEND", "HK_EVIDENCE")
        environment = {name: os.environ.get(name) for name in names}
        asked.append({"model": model, "options": list(options), **environment})
        asked[-1]["budget"] = Budget().left
        keep()

    monkeypatch.setattr(tune, "loader", lambda engine: load)
    return asked


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["tune", *options])


def test_the_model_is_loaded_with_the_options_of_the_server(
    loaded: list[dict[str, object]],
) -> None:
    result = run("--seconds", "20", "a/model", "--tensor-parallel-size", "2", "-q")
    assert result.exit_code == 0, result.output
    assert loaded == [
        {
            "model": "a/model",
            "options": ["--tensor-parallel-size", "2", "-q"],
            "HK_BACKEND": "1",
            "HK_EVIDENCE": "measure",
            "budget": 20.0,
        }
    ]
    assert "linear bf16 64x64 (vLLM: stock): by HK" in result.stdout


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
    keep(LAYER.model_copy(update={"layer": "old"}))
    other = this_machine("cpu").model_copy(update={"processor": "another"})
    folder.add(Measurements(machine=other, layers=(LAYER,)))
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


def test_every_known_engine_has_a_loader() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    _, section = text.split(f'[project.entry-points."{tune.LOADERS}"]\n')
    lines = section.partition("\n\n")[0].splitlines()
    assert lines == [f'{name} = "hk_{name}.load_once:load_once"' for name in tune.ENGINES]


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
