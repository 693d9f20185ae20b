"""What `hk-backend quantize` makes of SmolLM2 predicts a text nearly as well as the original does,
through vLLM's server; a checkpoint in which something is wrong does not.

The text is Newton's Opticks as apache-tvm-ffi, which vLLM requires, ships it: its first 16,384
tokens are calibrated on, 20,480 of the others measured, 2,048 where a fault is looked for.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from bench_serving.candidates import Candidate
from bench_serving.engines import Vllm
from bench_serving.perplexity import Plan, Row, measure
from hk_backend.ops.rotation import ROTATION_KEY
from hk_backend.quantize.job import Job
from hk_backend.quantize.settings import Settings
from tests.models import smollm2

pytestmark = pytest.mark.slow
OPTICKS = "Isaac.Newton-Opticks.txt"
GOALS = {
    "mxfp4": (Settings("mxfp4", method="gptq"), 1.7),
    "mxfp4-weights": (Settings("mxfp4", method="gptq", activations="none"), 1.25),
    "mxfp6": (Settings("mxfp6_e2m3", method="gptq", rotation=64), 1.03),
    "mxfp8": (Settings("mxfp8", method="gptq", rotation=64), 1.03),
    "fp8": (Settings("fp8", method="gptq"), 1.015),
}
"""Each format by gptq, and what it may make of the original's perplexity."""


def not_rotated(folder: Path) -> None:
    """The engine does not know that it has to rotate."""
    _edit_group(folder, lambda weights: weights.pop(ROTATION_KEY))


def another_block(folder: Path) -> None:
    _edit_group(folder, lambda weights: weights.update({ROTATION_KEY: 32}))


def a_scale_one_step_off(folder: Path) -> None:
    """Of every block of one kind of layer."""
    [file] = folder.glob("*.safetensors")
    tensors = load_file(file)
    for name in tensors:
        if name.endswith("down_proj.weight_scale"):
            tensors[name] += 1
    save_file(tensors, file, {"format": "pt"})


FAULTS: tuple[Callable[[Path], None], ...] = (not_rotated, another_block, a_scale_one_step_off)


def _edit_group(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    edit(config["quantization_config"]["config_groups"]["group_0"]["weights"])
    path.write_text(json.dumps(config))


def opticks() -> Path:
    [found] = [file for file in files("apache-tvm-ffi") or () if file.name == OPTICKS]
    return Path(str(found.locate()))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """By the checkpoint's name."""
    folder, text, original = tmp_path_factory.mktemp("perplexity"), opticks(), smollm2()
    for name, (settings, _) in GOALS.items():
        Job(original, folder / name, replace(settings, calibration=text)).run()
    for fault in FAULTS:
        shutil.copytree(folder / "mxfp4", folder / fault.__name__)
        fault(folder / fault.__name__)
    found = {}
    for names, tokens in ((list(GOALS), 20_480), ([fault.__name__ for fault in FAULTS], 2_048)):
        models = [original, *(folder / name for name in names)]
        plan = Plan(Vllm(), models, [Candidate.parse("hk")], "bfloat16", text, 20_000, tokens)
        found |= {row.model: row for row in measure(plan, folder / str(tokens), print)}
    return found


@pytest.mark.parametrize("name", GOALS)
def test_goals(name: str, rows: dict[str, Row]) -> None:
    assert rows[name].ratio <= GOALS[name][1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_seen(fault: Callable[[Path], None], rows: dict[str, Row]) -> None:
    assert rows[fault.__name__].ratio > GOALS["mxfp4"][1]
