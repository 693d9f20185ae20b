"""Rotated checkpoints in running servers: served by HK, on one rank and on two, and by nothing
else."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hk_backend.ops.rotation import ROTATION_KEY
from tests.integration.hk_sglang.e2e.test_linear import ENGINE, SPAWNED, Serialized
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.checkpoints.folded import make_folded
from tests.integration.shared.checkpoints.online import ONLINE
from tests.integration.shared.e2e.engine import HK, Checkpoint, Reader
from tests.integration.shared.e2e.quantized import assert_all_by_hk, assert_checked, assert_true
from tests.integration.shared.e2e.rotation_faults import SCHEME, assert_right_and_red, scenario
from tests.integration.shared.e2e.scenario import Scenario
from tests.integration.shared.linear.devices import GFX950

pytestmark = pytest.mark.engine_proof

REFUSED = {
    "gfx950": (HK | {"HK_DEVICE": GFX950}, "gfx950 has no kernels for mxfp4 weights"),
    "attention alone": ({"HK_BACKEND": "attention"}, rf"{ROTATION_KEY}\s+Extra inputs are not"),
}
"""Servers where HK does not take the layers, and why they stop."""


@dataclass(frozen=True)
class Rotated(Serialized):
    """`kind`: "faults" on one rank, "ranks", or one of `REFUSED`."""

    kind: str = "faults"

    def __str__(self) -> str:
        return f"{self.scheme}-{self.kind}"

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        made = self.made(checkpoint, folder)
        plain = replace(scenario(str(self), made, ENGINE), environment=HK)
        if self.kind == "faults":
            return [plain]
        if self.kind == "ranks":
            return [on_two_ranks(plain)]
        return [replace(plain, rounds=plain.rounds[:1], environment=REFUSED[self.kind][0])]


def on_two_ranks(one: Scenario) -> Scenario:
    """Its healthy round. Spawned, nothing makes SGLang take such a checkpoint in float32."""
    environment, engine = HK | SPAWNED | {"HK_CHECK": "1"}, one.engine | {"tp_size": 2}
    ranks = replace(one, dtype="bfloat16", sabotage="", environment=environment)
    return replace(ranks, rounds=one.rounds[:1], engine=engine)


@pytest.mark.parametrize("item", [Rotated(SCHEME)], ids=str)
def test_served_and_rotated(
    item: Rotated, served: Reader, checkpoint: Checkpoint, folder: Path
) -> None:
    """Every layer by HK, as the checkpoint means it; a layer whose inputs are not rotated, or in
    other blocks, answers something else."""
    assert_right_and_red(served(str(item)).only, item.made(checkpoint, folder).truth)


@dataclass(frozen=True)
class Folded(Serialized):
    """Most inputs come rotated. `ranks`: how many, 1 or 2."""

    ranks: int = 1

    def __str__(self) -> str:
        return f"{self.scheme}-folded-{self.ranks}"

    def made(self, checkpoint: Checkpoint, folder: Path) -> Made:
        into = folder / "quantized"
        into.mkdir(exist_ok=True)
        return make_folded(Path(checkpoint("tiny-64")), into)

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        made = self.made(checkpoint, folder)
        one = replace(scenario(str(self), made, ENGINE), environment=HK)
        return [one if self.ranks == 1 else on_two_ranks(one)]


@pytest.mark.parametrize("item", [Folded(SCHEME)], ids=str)
def test_served_and_folded(
    item: Folded, served: Reader, checkpoint: Checkpoint, folder: Path
) -> None:
    assert_right_and_red(served(str(item)).only, item.made(checkpoint, folder).truth)


@dataclass(frozen=True)
class Online(Serialized):
    """`--quantization hk_mxfp4`, without an option. `ranks`: how many, 1 or 2."""

    ranks: int = 1

    def __str__(self) -> str:
        return f"{self.scheme}-{self.ranks}"

    def made(self, checkpoint: Checkpoint, folder: Path) -> Made:
        source, into = Path(checkpoint("tiny-64")), folder / "quantized"
        into.mkdir(exist_ok=True)
        return replace(make(ONLINE, source, into), checkpoint=source)

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        engine = ENGINE | {"quantization": "hk_mxfp4"}
        made = self.made(checkpoint, folder)
        one = replace(scenario(str(self), made, engine), environment=HK)
        return [one if self.ranks == 1 else on_two_ranks(one)]


@pytest.mark.parametrize("item", [Online(ONLINE.name)], ids=str)
def test_rotated_while_loading(
    item: Online, served: Reader, checkpoint: Checkpoint, folder: Path
) -> None:
    assert_right_and_red(served(str(item)).only, item.made(checkpoint, folder).truth)


@pytest.mark.parametrize("item", [Rotated(SCHEME, kind) for kind in REFUSED], ids=str)
def test_a_server_that_stops(item: Rotated, served: Reader) -> None:
    engine = served(str(item))
    result = engine.result
    assert result is None or result.error, "it was served"
    assert re.search(REFUSED[item.kind][1], engine.log + str(result)), engine.log


@pytest.mark.parametrize(
    "item", [Rotated(SCHEME, "ranks"), Folded(SCHEME, 2), Online(ONLINE.name, 2)], ids=str
)
def test_two_ranks(
    item: Rotated | Folded | Online, served: Reader, checkpoint: Checkpoint, folder: Path
) -> None:
    """Each rotates its own channels, if v_proj's part has not; HK_CHECK compares every call with
    the reference."""
    found = served(str(item)).only
    assert len(found.rounds[-1].workers) == 2
    assert_all_by_hk(found)
    assert_checked(found)
    truth = item.made(checkpoint, folder).truth
    assert_true(SCHEMES[SCHEME], found, truth, "bfloat16")
