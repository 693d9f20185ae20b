"""Linear layers in running engines: weights quantised while they are loaded, and before."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from tests.integration.hk_sglang.linear_checkpoints import UNKNOWN_SCHEMES
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.e2e.compare import assert_true_answers, assert_true_logprobs
from tests.integration.shared.e2e.engine import HK, Checkpoint, Reader
from tests.integration.shared.e2e.quantized import (
    LAYERS,
    assert_all_by_hk,
    assert_checked,
    assert_on_gfx950,
    assert_true,
)
from tests.integration.shared.e2e.rewritten import Weights, fp8_values, mx_values, rewritten
from tests.integration.shared.e2e.rounding import assert_same_numbers
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.integration.shared.linear.devices import GFX950, unserved
from tests.models import random_prompts

pytestmark = pytest.mark.engine_proof

LENGTHS = [7, 64, 150]
ENGINE = {"disable_radix_cache": True, "max_total_tokens": 1024}
ALONE = {**ENGINE, "max_running_requests": 1}
"""Where activation scales span the batch."""
SERIALIZED = ("hk-fp8_e4m3fn", "hk-mxfp4", "ct-channel-token", "fp8-static", "fp8-block")
"""HK's own formats, and one of each way through SGLang that a CPU can be taken."""


@dataclass(frozen=True)
class Online:
    """Weight-only, so that a float32 engine and the truth round the same numbers: the weights."""

    method: str
    format: str
    values: Weights

    def __str__(self) -> str:
        return self.method

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        options = {"quant_method": self.method, "serialized": False, "format": self.format}
        override = {"quantization_config": {**options, "activations": "none"}}
        engine = {**ENGINE, "quantization": self.method}
        engine["json_model_override_args"] = json.dumps(override)
        return [_scenario(str(self), checkpoint("tiny-64"), "float32", engine)]


@dataclass(frozen=True)
class Serialized:
    """A scheme of tests/integration/shared/checkpoints."""

    scheme: str

    def __str__(self) -> str:
        return self.scheme

    def made(self, checkpoint: Checkpoint, folder: Path) -> Made:
        return _made(self.scheme, Path(checkpoint("tiny-64")), folder / "quantized")

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        model = str(self.made(checkpoint, folder).checkpoint)
        return [_scenario(str(self), model, "float32", ENGINE)]


@dataclass(frozen=True)
class OnGfx950(Serialized):
    """The same in bfloat16 on the emulated GPU, each call compared with the reference, and on the
    cpu device in one process."""

    ranks: int = 1

    def __str__(self) -> str:
        return f"{self.scheme}-gfx950-{self.ranks}"

    @property
    def on_cpu(self) -> str:
        return f"{self.scheme}-bfloat16"

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        model = str(self.made(checkpoint, folder).checkpoint)
        alone = SCHEMES[self.scheme].per_batch
        rounds = [Round(random_prompts(LENGTHS, seed=11), max_tokens=1 if alone else 3)]
        engine = ALONE if alone else ENGINE
        cpu = Scenario(self.on_cpu, model, rounds, "bfloat16", engine, environment=HK)
        environment = HK | {"HK_DEVICE": GFX950, "HK_CHECK": "1"}
        if self.ranks > 1:
            engine = engine | {"tp_size": self.ranks}
            environment |= SPAWNED
        found = replace(cpu, name=str(self), engine=engine, environment=environment)
        return [found, cpu]


SPAWNED = {"TEST_SPAWN": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
ON_GFX950 = [
    OnGfx950("ct-channel-token", ranks=2),
    *(
        OnGfx950(scheme.name)
        for scheme in SCHEMES.values()
        if scheme.name not in UNKNOWN_SCHEMES and not unserved(GFX950, scheme.scale_kind)
    ),
]


@cache
def _made(scheme: str, source: Path, folder: Path) -> Made:
    folder.mkdir(exist_ok=True)
    return make(SCHEMES[scheme], source, folder)


def _scenario(name: str, model: str, dtype: str, engine: dict[str, object]) -> Scenario:
    rounds = [Round(random_prompts(LENGTHS, seed=11), max_tokens=3)]
    return Scenario(name, model, rounds, dtype, engine, "float32_everywhere", HK)


ONLINE = [
    Online("hk_fp8", "fp8_e4m3fn", fp8_values),
    Online("hk_mxfp6", "mxfp6_e3m2", mx_values("mxfp6_e3m2")),
]


@pytest.mark.parametrize("item", ONLINE, ids=str)
def test_quantised_while_loading(
    item: Online, served: Reader, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """The weights that the format has for the checkpoint's, and not the checkpoint's own."""
    result = served(str(item)).only
    linear = result.rounds[-1].workers[0].routes["linear"]
    assert (linear["layers"], linear["layers_left"]) == (LAYERS, {})
    source = checkpoint("tiny-64")
    truth = rewritten(Path(source), tmp_path / "truth", item.values)
    for answered in result.rounds:
        assert_true_answers(answered.answers, str(truth))
        with pytest.raises(AssertionError, match="log-probability"):
            assert_true_logprobs(answered.answers, source)


@pytest.mark.held
@pytest.mark.parametrize("item", [Serialized(name) for name in SERIALIZED], ids=str)
def test_quantised_before(
    item: Serialized, served: Reader, checkpoint: Checkpoint, folder: Path
) -> None:
    """Every layer by HK, shard by shard, activations rounded as the checkpoint says."""
    result = served(str(item)).only
    assert_all_by_hk(result)
    assert_true(SCHEMES[item.scheme], result, item.made(checkpoint, folder).truth, "float32")


@pytest.mark.parametrize("item", ON_GFX950, ids=str)
def test_devices_agree(
    item: OnGfx950, served: Reader, checkpoint: Checkpoint, folder: Path
) -> None:
    """Both routes by MI355X machine code, each layer within rounding of the reference, and answers
    as near to the truth, and to the cpu device's, as rounding allows."""
    found, cpu = served(str(item)).only, served(item.on_cpu).only
    scheme, truth = SCHEMES[item.scheme], item.made(checkpoint, folder).truth
    assert len(found.rounds[-1].workers) == item.ranks
    assert_all_by_hk(found)
    assert_on_gfx950(found)
    assert_checked(found)
    assert_true(scheme, found, truth, "bfloat16")
    assert_same_numbers(found, cpu, str(truth))
