"""Linear layers in running engines of either kind: each case's engines, and checks of answers.

In float32 nothing but a mistake is far from the truth. Engines take float32 with some methods only,
so the tests make them take it with all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hk_backend.ops.rotation import ROTATION_KEY
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.checkpoints.damage import Damage
from tests.integration.shared.checkpoints.ours import ONLINE, make_folded
from tests.integration.shared.e2e import linear_faults
from tests.integration.shared.e2e.engine import HK, Checkpoint, Reader
from tests.integration.shared.e2e.linear_faults import FAULTY, ROTATION_FAULTS
from tests.integration.shared.e2e.quantized import (
    assert_all_by_hk,
    assert_checked,
    assert_on_gfx950,
    assert_true,
    error_in,
)
from tests.integration.shared.e2e.rounding import assert_as_exact, assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.integration.shared.linear.devices import GFX950
from tests.models import random_prompts

LENGTHS = [7, 64, 150]
SCHEME = "ct-mxfp4-rotated"


@dataclass(frozen=True)
class How:
    """An engine's names for its arguments.

    Attributes:
        engine, alone, ranks: arguments of every engine, of one that computes a request at a time,
            and of one on two ranks.
        spawned: the environment of one on two ranks; `dtype_of_ranks`: what it can be made to take.
        online: arguments of `--quantization NAME`, with options.
    """

    engine: dict[str, Any]
    alone: dict[str, Any]
    ranks: dict[str, Any]
    spawned: dict[str, str]
    dtype_of_ranks: str
    online: Callable[[str, dict[str, str]], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One case; `ranks`: 1 or 2."""

    how: How = field(repr=False)
    scheme: str
    ranks: int = field(default=1, kw_only=True)

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}-{self.scheme}" + ("-2" if self.ranks > 1 else "")

    def made(self, checkpoint: Checkpoint, folder: Path) -> Made:
        """Make the checkpoint, and the truth about it."""
        into = folder / "quantized"
        into.mkdir(exist_ok=True)
        return self.make(Path(checkpoint("tiny-64")), into)

    def make(self, source: Path, into: Path) -> Made:
        return make(SCHEMES[self.scheme], source, into)

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        """The engines that `check` reads; the first has the case's name."""
        return [self.scenario(str(self.made(checkpoint, folder).checkpoint))]

    def scenario(self, model: str, dtype: str = "float32", max_tokens: int = 3) -> Scenario:
        rounds, engine = [Round(random_prompts(LENGTHS, seed=11), max_tokens)], self.how.engine
        if self.scheme in SCHEMES and SCHEMES[self.scheme].per_batch:
            rounds, engine = [replace(rounds[0], max_tokens=1)], engine | self.how.alone
        sabotage = "float32_everywhere" if dtype == "float32" else ""
        return Scenario(str(self), model, rounds, dtype, engine, sabotage, HK)

    def check(self, served: Reader, made: Made) -> None:
        """Hold that HK computed every layer, with activations rounded as the checkpoint says."""
        found = served(str(self)).only
        assert_all_by_hk(found)
        assert_true(SCHEMES[self.scheme], found, made.truth, "float32")

    def on_ranks(self, one: Scenario, dtype: str) -> Scenario:
        environment = one.environment | self.how.spawned
        engine, sabotage = one.engine | self.how.ranks, one.sabotage if dtype == "float32" else ""
        return replace(one, dtype=dtype, sabotage=sabotage, engine=engine, environment=environment)


@dataclass(frozen=True)
class Serialized(Case):
    """A checkpoint that a tool has written; float16 is vLLM's own choice for it."""

    dtype: str = "float32"

    def __str__(self) -> str:
        return super().__str__() + ("" if self.dtype == "float32" else f"-{self.dtype}")

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        return [self.scenario(str(self.made(checkpoint, folder).checkpoint), self.dtype)]

    def check(self, served: Reader, made: Made) -> None:
        found = served(str(self)).only
        assert_all_by_hk(found)
        assert_true(SCHEMES[self.scheme], found, made.truth, self.dtype)


@dataclass(frozen=True)
class OnGfx950(Case):
    """A case in bfloat16 on the emulated GPU, each call compared with the reference.

    The cpu device serves it too, in one process. `more`: further arguments of the engine, and of
    its environment.
    """

    more: tuple[dict[str, Any], dict[str, str]] = field(default=({}, {}), repr=False, hash=False)

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        model = str(self.made(checkpoint, folder).checkpoint)
        cpu = replace(self.scenario(model, "bfloat16"), name=self.on_cpu)
        environment = HK | {"HK_DEVICE": GFX950, "HK_CHECK": "1"} | self.more[1]
        engine = cpu.engine | self.more[0]
        found = replace(cpu, name=str(self), environment=environment, engine=engine)
        return [self.on_ranks(found, "bfloat16") if self.ranks > 1 else found, cpu]

    @property
    def on_cpu(self) -> str:
        return f"{self.scheme}-bfloat16"

    def check(self, served: Reader, made: Made) -> None:
        """Hold that MI355X machine code computed both routes, each layer near the reference.

        The answers are as near to the truth, and to the cpu device's, as rounding allows.
        """
        found, cpu = served(str(self)).only, served(self.on_cpu).only
        assert len(found.rounds[-1].workers) == self.ranks
        assert_all_by_hk(found)
        assert_on_gfx950(found)
        if self.more[1].get("HK_CHECK") != "0":
            assert_checked(found)
        assert_true(SCHEMES[self.scheme], found, made.truth, "bfloat16")
        assert_same_numbers(found, cpu, str(made.truth))


@dataclass(frozen=True)
class Faulty(Case):
    """A case in bfloat16 on the emulated GPU, healthy first, then with every fault of `FAULTY`.

    The cpu device serves it without faults.
    """

    fault: str

    def __str__(self) -> str:
        return f"{self.scheme}-{self.fault}"

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        model = str(self.made(checkpoint, folder).checkpoint)
        cpu = replace(self.scenario(model, "bfloat16"), name=self.names[1])
        faulty = [
            replace(cpu.rounds[0], max_tokens=1, mutation=each) for each in FAULTY[self.scheme]
        ]
        environment, rounds = HK | {"HK_DEVICE": GFX950}, [*cpu.rounds, *faulty]
        return [replace(cpu, name=self.names[0], environment=environment, rounds=rounds), cpu]

    @property
    def names(self) -> tuple[str, str]:
        return f"{self.scheme}-faults", f"{self.scheme}-bfloat16"

    def check(self, served: Reader, made: Made) -> None:
        """Hold that the healthy round is as exact as the cpu device, and the faulty one is not.

        HK counts the faulty round as its own.
        """
        found, cpu = (served(name).only for name in self.names)
        stock = error_of(cpu.rounds, str(made.truth))
        healthy, *faulty = found.rounds
        assert_as_exact(error_of([healthy], str(made.truth)), stock)
        index = FAULTY[self.scheme].index(self.fault)
        before, item = found.rounds[index].workers[0], faulty[index].workers[0]
        assert item.mutated_calls > before.mutated_calls
        assert item.routes["linear"]["on"]
        with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
            assert_as_exact(error_of([faulty[index]], str(made.truth)), stock)


# -- rotated


class Rotated(Case):
    """A checkpoint with rotated layers.

    On one rank a layer answers something else if its inputs are not rotated, or rotated in other
    blocks. On two ranks each rotates its own channels, and HK_CHECK compares every call with the
    reference.
    """

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        made = self.made(checkpoint, folder)
        prompts = random_prompts(linear_faults.LENGTHS, seed=11)
        faulty = [Round(prompts, 1, mutation=fault) for fault in ROTATION_FAULTS]
        engine, rounds = self.how.engine | self.more, [Round(prompts, 3), *faulty]
        model = str(made.checkpoint)
        one = Scenario(str(self), model, rounds, "float32", engine, "float32_everywhere", HK)
        if self.ranks == 1:
            return [one]
        checked = replace(one, environment=HK | {"HK_CHECK": "1"}, rounds=rounds[:1])
        return [self.on_ranks(checked, self.how.dtype_of_ranks)]

    @property
    def more(self) -> dict[str, Any]:
        return {}

    def check(self, served: Reader, made: Made) -> None:
        found = served(str(self)).only
        right, *faulty = found.rounds
        healthy = replace(found, rounds=[right])
        assert_all_by_hk(healthy)
        if self.ranks > 1:
            assert len(right.workers) == 2
            assert_checked(found)
            assert_true(SCHEMES[SCHEME], found, made.truth, self.how.dtype_of_ranks)
            return
        assert_true(SCHEMES[SCHEME], healthy, made.truth, "float32")
        allowed = error_in("float32", healthy, made.truth)
        mutated = [0, *(item.workers[0].mutated_calls for item in faulty)]
        assert mutated == sorted(set(mutated)), "a fault that was not in place"
        for item in faulty:
            with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
                assert_as_exact(error_of([item], str(made.truth)), allowed)


class Folded(Rotated):
    """A checkpoint whose weights absorb rotations: most inputs come rotated."""

    def make(self, source: Path, into: Path) -> Made:
        return make_folded(source, into)


class RotatedWhileLoading(Rotated):
    """Rotation while loading: `--quantization hk_mxfp4`, without an option."""

    def make(self, source: Path, into: Path) -> Made:
        return replace(make(ONLINE, source, into), checkpoint=source)

    @property
    def more(self) -> dict[str, Any]:
        return self.how.online("hk_mxfp4", {})


# -- refused


@dataclass(frozen=True)
class Refused(Rotated):
    """A server that stops, with these variables or arguments, and why.

    `folded`: most inputs of its checkpoint come rotated.
    """

    name: str
    why: str
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    arguments: dict[str, Any] = field(default_factory=dict, repr=False)
    folded: bool = False

    def __str__(self) -> str:
        return f"refused-{self.name}"

    def make(self, source: Path, into: Path) -> Made:
        return make_folded(source, into) if self.folded else super().make(source, into)

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        [found] = super().scenarios(checkpoint, folder)
        environment, engine = HK | self.environment, found.engine | self.arguments
        rounds = found.rounds[:1]
        return [replace(found, environment=environment, engine=engine, rounds=rounds)]

    def check(self, served: Reader, made: Made) -> None:
        engine = served(str(self))
        assert engine.result is None or engine.result.error, "it was served"
        assert re.search(self.why, engine.log + engine.error), engine.log


def refused(how: How) -> list[Refused]:
    """Cases in which HK does not take rotated layers."""
    stock = rf"{ROTATION_KEY}\s+Extra inputs are not"
    return [
        Refused(how, SCHEME, "attention", stock, {"HK_BACKEND": "attention"}),
    ]


@dataclass(frozen=True)
class Damaged(Case):
    """An engine that does not start, and says which tensor is wrong and how."""

    damage: Damage

    def __str__(self) -> str:
        return f"damaged-{self.damage}"

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        out = folder / "quantized" / str(self)
        healthy = self.made(checkpoint, folder).checkpoint
        return [self.scenario(str(out if out.exists() else self.damage.make(healthy, out)))]

    def check(self, served: Reader, made: Made) -> None:
        error = served(str(self)).error
        assert error, "it was served"
        assert self.damage.name in error
        assert re.search(self.damage.says, error), error
