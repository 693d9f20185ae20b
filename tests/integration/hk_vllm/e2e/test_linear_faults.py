"""Faults in HK's linear layers on the emulated GPU: each turns an engine's answers red."""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm.e2e.engine import serve
from tests.integration.hk_vllm.e2e.quantized import ENGINE
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.e2e.engine import HK, Served
from tests.integration.shared.e2e.linear_faults import LINEAR_FAULTS, assert_red, name_on, scenarios
from tests.integration.shared.linear.devices import CPU, GFX950
from tests.models import tiny_llama


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("faults")
    return make(SCHEMES["ct-channel-token"], tiny_llama(folder, 64), folder)


@pytest.fixture(scope="module")
def served(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("served")
    return serve(scenarios(made.checkpoint, ENGINE), folder, HK, at_a_time=2)


@pytest.mark.parametrize("fault", LINEAR_FAULTS)
def test_a_fault_is_seen(fault: str, served: Served, made: Made) -> None:
    found, cpu = (served[name_on(device)] for device in (GFX950, CPU))
    assert_red(fault, found, cpu, made.truth)
