"""Faults in HK's linear layers on the emulated GPU: each turns an engine's answers red."""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm.e2e.engine import serve
from tests.integration.hk_vllm.e2e.quantized import ENGINE
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.e2e.engine import HK, Engines
from tests.integration.shared.e2e.linear_faults import EACH, FAULTY, assert_red, name_on, scenarios
from tests.integration.shared.linear.devices import CPU, GFX950
from tests.models import tiny_llama


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    folder = tmp_path_factory.mktemp("faults")
    source = tiny_llama(folder, 64)
    return {scheme: make(SCHEMES[scheme], source, folder) for scheme in FAULTY}


@pytest.fixture(scope="module")
def served(made: dict[str, Made], tmp_path_factory: pytest.TempPathFactory) -> Engines:
    asked = [each for scheme in FAULTY for each in scenarios(scheme, made[scheme], ENGINE)]
    return serve(asked, tmp_path_factory.mktemp("served"), HK)


@pytest.mark.engine_proof
@pytest.mark.parametrize(("scheme", "fault"), EACH)
def test_a_fault_is_seen(scheme: str, fault: str, served: Engines, made: dict[str, Made]) -> None:
    found, cpu = (served[name_on(device, scheme)] for device in (GFX950, CPU))
    assert_red(fault, found, cpu, made[scheme].truth)
