"""Checkpoints of other tools: HK computes what they mean, and names what is wrong in a corrupt one.

In float32 nothing but a mistake is far from the truth. vLLM takes float32 with some methods only,
so the engines here are told to take it with all; what they take by themselves is run in float16.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.integration.hk_vllm.e2e.engine import serve
from tests.integration.hk_vllm.e2e.quantized import damaged, name_of, scenario
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.checkpoints.damage import DAMAGES, Damage
from tests.integration.shared.e2e.compare import assert_not_loaded
from tests.integration.shared.e2e.engine import HK, Engines
from tests.integration.shared.e2e.quantized import (
    assert_all_by_hk,
    assert_checked,
    assert_on_gfx950,
    assert_true,
    error_in,
)
from tests.integration.shared.e2e.rounding import assert_same_numbers, assert_within
from tests.integration.shared.e2e.scenario import Scenario
from tests.integration.shared.linear.devices import CPU, DEVICES, GFX950, unserved
from tests.models import tiny_llama

QUICK = (
    "fp8-static",
    "fp8-block",
    "ct-channel-token",
    "ct-channel-weight-only",
    "ct-mxfp4",
    "quark-mxfp6_e2m3",
    "modelopt-fp8",
    "hk-mxfp4",
)
"""One of each way through vLLM; the others are slow tests."""
QUICK_HALF = ("fp8-dynamic", "quark-mxfp6_e3m2-weight-only")
QUICK_GFX950 = ("fp8-block", "ct-channel-token")
STOCK_RUNS = ("ct-channel-token", "quark-channel-token", "modelopt-channel-token")
"""All that stock vLLM can serve on a CPU with AVX2."""
STOCK_LENGTHS = [7, 40]
SHORT = {"max_model_len": 64, "max_num_batched_tokens": 64}
"""For what stock serves too: it computes three tokens a second, also when it profiles."""
SLOW_DAMAGES = ("hk", "quark", "o_proj", "down_proj")
"""What a damaged checkpoint's name holds, if it is a slow test."""


@dataclass(frozen=True)
class Case:
    """A scheme served by HK in a dtype, or by HK and by stock; on a device, or on both."""

    scheme: str
    dtype: str = "float32"
    by_stock: bool = False
    device: str = CPU

    def __str__(self) -> str:
        return f"{self.scheme}-{self.dtype}" + ("-gfx950" if self.device == GFX950 else "")

    @property
    def devices(self) -> tuple[str, ...]:
        """On which it is served: beside an emulated GPU on the cpu device, too."""
        return (CPU,) if self.device == CPU else DEVICES

    def is_quick(self) -> bool:
        if self.by_stock:
            return self.scheme == STOCK_RUNS[0]
        if self.device == GFX950:
            return self.scheme in QUICK_GFX950
        return self.scheme in (QUICK if self.dtype == "float32" else QUICK_HALF)


Item = Case | Damage


def parameters(items: list[Case] | list[Damage]) -> list[object]:
    proof, slow = pytest.mark.engine_proof, pytest.mark.slow
    return [
        pytest.param(item, id=str(item), marks=proof if is_quick(item) else slow) for item in items
    ]


def is_quick(item: Item) -> bool:
    if isinstance(item, Case):
        return item.is_quick()
    return not any(part in str(item) for part in SLOW_DAMAGES)


FLOAT32 = [Case(scheme) for scheme in SCHEMES]
HALF = [Case(scheme.name, "float16") for scheme in SCHEMES.values() if "float16" in scheme.dtypes]
ON_GFX950 = [
    Case(scheme.name, "bfloat16", device=GFX950)
    for scheme in SCHEMES.values()
    if not unserved(GFX950, scheme.scale_kind)
]
WITH_STOCK = [Case(scheme, by_stock=True) for scheme in STOCK_RUNS]

Maker = Callable[[str], Made]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quantized")


@pytest.fixture(scope="module")
def made(folder: Path) -> Maker:
    """The checkpoint of a scheme, made on first use."""
    source = tiny_llama(folder, 64)
    return lambda scheme: make(SCHEMES[scheme], source, folder)


@pytest.fixture(scope="module")
def selected(request: pytest.FixtureRequest) -> list[Item]:
    """What the selected tests of this file are about, each once."""
    items: dict[Item, None] = {}
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        value = callspec.params.get("item") if callspec else None
        if isinstance(value, Case | Damage):
            items[value] = None
    return list(items)


@pytest.fixture(scope="module")
def hk(selected: list[Item], made: Maker, folder: Path) -> Engines:
    """All of it, with HK."""
    scenarios = []
    for item in selected:
        healthy = made(item.scheme)
        if isinstance(item, Damage):
            out = item.make(healthy.checkpoint, folder / str(item))
            scenarios.append(damaged(item, out))
        elif not item.by_stock:
            scenarios += [
                scenario(SCHEMES[item.scheme], healthy, item.dtype, device=device)
                for device in item.devices
            ]
    scenarios += with_stock(selected, made)
    return serve(scenarios, folder / "hk", HK)


@pytest.fixture(scope="module")
def stock(selected: list[Item], made: Maker, folder: Path) -> Engines:
    """What stock can serve of it, without HK."""
    return serve(with_stock(selected, made), folder / "stock", {})


def with_stock(selected: list[Item], made: Maker) -> list[Scenario]:
    cases = [item for item in selected if isinstance(item, Case) and item.by_stock]
    scenarios = []
    for case in cases:
        scheme = SCHEMES[case.scheme]
        long = scenario(scheme, made(case.scheme), case.dtype, STOCK_LENGTHS)
        scenarios.append(replace(long, name=f"{case}-short", engine=SHORT))
    return scenarios


@pytest.mark.parametrize("item", parameters(FLOAT32 + HALF + ON_GFX950))
def test_what_it_means(item: Case, hk: Engines, made: Maker) -> None:
    """Every layer by HK, shard by shard, activations rounded as the checkpoint says."""
    scheme = SCHEMES[item.scheme]
    result = hk[name_of(scheme, item.dtype, item.device)]
    assert_all_by_hk(result)
    assert_true(scheme, result, made(item.scheme).truth, item.dtype)


@pytest.mark.parametrize("item", parameters(ON_GFX950))
def test_devices_agree(item: Case, hk: Engines, made: Maker) -> None:
    """Both routes by MI355X machine code, each layer within rounding of the reference, and answers
    as near to the cpu device's as rounding allows."""
    found, cpu = (hk[name_of(SCHEMES[item.scheme], item.dtype, each)] for each in (GFX950, CPU))
    assert_on_gfx950(found)
    assert_checked(found)
    assert_same_numbers(found, cpu, str(made(item.scheme).truth))


@pytest.mark.parametrize("item", parameters(WITH_STOCK))
def test_as_stock_has_it(item: Case, hk: Engines, stock: Engines, made: Maker) -> None:
    """Stock finds the same truth, and HK agrees with it as two float32 engines can agree."""
    scheme, truth = SCHEMES[item.scheme], made(item.scheme).truth
    found, expected = hk[f"{item}-short"], stock[f"{item}-short"]
    assert_not_loaded(expected)
    assert_all_by_hk(found)
    assert_true(scheme, expected, truth, item.dtype)
    assert_within(found.rounds, expected.rounds, error_in(item.dtype, expected, truth))


@pytest.mark.parametrize("item", parameters(DAMAGES))
def test_a_corrupt_checkpoint(item: Damage, hk: Engines) -> None:
    """The engine does not start, and says which tensor is wrong and how."""
    error = hk.of(str(item)).error
    assert error, "it was served"
    assert item.name in error
    assert re.search(item.says, error), error
