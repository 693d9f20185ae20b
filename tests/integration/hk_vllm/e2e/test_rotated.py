"""Rotated checkpoints in running engines: served by HK, on one rank and on two, and by nothing
else. More of what they mean: test_quantized_checkpoints.py."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hk_backend.ops.rotation import ROTATION_KEY
from tests.integration.hk_vllm.e2e.engine import COMPILED, SPAWNED, serve
from tests.integration.hk_vllm.e2e.quantized import ENGINE
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.checkpoints.folded import make_folded
from tests.integration.shared.checkpoints.online import ONLINE
from tests.integration.shared.e2e.engine import HK, Engines
from tests.integration.shared.e2e.quantized import assert_all_by_hk, assert_checked, assert_true
from tests.integration.shared.e2e.rotation_faults import SCHEME, assert_right_and_red, scenario
from tests.integration.shared.linear.devices import GFX950
from tests.models import tiny_llama

LOADING = {"quantization": "hk_mxfp4"}
RANKS = SPAWNED | {"VLLM_CPU_OMP_THREADS_BIND": "0|1", "HK_CHECK": "1"}
REFUSED = {
    "gfx950": ({"HK_DEVICE": GFX950}, "gfx950 has no kernels for mxfp4 weights"),
    "disabled": ({"VLLM_DISABLED_KERNELS": "HKMxfp4LinearKernel"}, "disabled by environment"),
    "attention alone": ({"HK_BACKEND": "attention"}, rf"{ROTATION_KEY}\s+Extra inputs are not"),
}
"""Engines where HK does not take the layers, and why they stop."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("rotated")
    return make(SCHEMES[SCHEME], tiny_llama(folder, 64), folder)


@pytest.fixture(scope="module")
def folded(made: Made) -> Made:
    folder = made.checkpoint.parent
    return make_folded(tiny_llama(folder, 64), folder)


@pytest.fixture(scope="module")
def served(made: Made, folded: Made, tmp_path_factory: pytest.TempPathFactory) -> Engines:
    one = scenario("one", made, ENGINE)
    refused = [
        replace(one, name=name, environment=environment)
        for name, (environment, _) in REFUSED.items()
    ]
    whole = scenario("folded", folded, ENGINE)
    adapted = replace(whole, name="adapted", engine=ENGINE | {"enable_lora": True})
    return serve([one, *refused, whole, adapted], tmp_path_factory.mktemp("served"), HK)


@pytest.mark.engine_proof
def test_served_and_rotated(served: Engines, made: Made) -> None:
    """Every layer by HK, as the checkpoint means it; a layer whose inputs are not rotated, or in
    other blocks, answers something else."""
    assert_right_and_red(served["one"], made.truth)


@pytest.mark.engine_proof
def test_served_and_folded(served: Engines, folded: Made) -> None:
    """The same, where most inputs come rotated; adapters would not know."""
    assert_right_and_red(served["folded"], folded.truth)
    error = served.of("adapted").error
    assert "hk_folded 'all' is not valid with LoRA adapters" in error, error


@pytest.mark.engine_proof
@pytest.mark.parametrize("name", REFUSED)
def test_an_engine_that_stops(name: str, served: Engines) -> None:
    error = served.of(name).error
    assert error, "it was served"
    assert re.search(REFUSED[name][1], error), error


@pytest.mark.slow
def test_rotated_while_loading(tmp_path: Path) -> None:
    """`--quantization hk_mxfp4`, without an option."""
    source = tiny_llama(tmp_path, 64)
    made = replace(make(ONLINE, source, tmp_path), checkpoint=source)
    plain = scenario("online", made, ENGINE | LOADING)
    found = serve([plain], tmp_path / "served", HK)["online"]
    assert_right_and_red(found, made.truth)


@pytest.mark.slow
def test_two_ranks(made: Made, folded: Made, tmp_path: Path) -> None:
    """Each rotates its own channels, if v_proj's part has not; HK_CHECK compares every call with
    the reference. A rotated checkpoint, a folded one, and a model that is rotated while loading."""
    source = tiny_llama(tmp_path, 64)
    online = replace(make(ONLINE, source, tmp_path), checkpoint=source)
    cases = {"rotated": (made, {}), "folded": (folded, {}), "online": (online, LOADING)}
    asked = []
    for name, (of, options) in cases.items():
        plain = scenario(name, of, ENGINE | options | {"tensor_parallel_size": 2})
        asked.append(replace(plain, rounds=plain.rounds[:1], environment=RANKS))
    served = serve(asked, tmp_path / "served", HK)
    for name, (of, _) in cases.items():
        found = served[name]
        assert len(found.rounds[-1].workers) == 2
        assert_all_by_hk(found)
        assert_checked(found)
        assert_true(SCHEMES[SCHEME], found, of.truth, "float32")


@pytest.mark.slow
def test_compiled(made: Made, tmp_path: Path) -> None:
    """In vLLM's graphs, too."""
    plain = scenario("compiled", made, ENGINE | {"enforce_eager": False})
    served = serve([replace(plain, rounds=plain.rounds[:1], environment=COMPILED)], tmp_path, HK)
    assert served.of("compiled").lines("saved AOT compiled function"), "nothing was compiled"
    found = served["compiled"]
    assert_all_by_hk(found)
    assert_true(SCHEMES[SCHEME], found, made.truth, "float32")
