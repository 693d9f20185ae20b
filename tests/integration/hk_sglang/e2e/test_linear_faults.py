"""Faults in HK's linear layers on the emulated GPU: each turns an engine's answers red."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.integration.hk_sglang.e2e.test_linear import ENGINE, Serialized
from tests.integration.shared.e2e.engine import HK, Checkpoint, Reader
from tests.integration.shared.e2e.linear_faults import EACH, assert_red, scenarios
from tests.integration.shared.e2e.scenario import Scenario

pytestmark = pytest.mark.engine_proof


@dataclass(frozen=True)
class Faulty(Serialized):
    """On the emulated GPU with every fault, and on the cpu device without."""

    def __str__(self) -> str:
        return f"{self.scheme}-faults"

    def scenarios(self, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
        return [
            replace(each, environment=HK | each.environment)
            for each in scenarios(self.scheme, self.made(checkpoint, folder), ENGINE)
        ]


@pytest.mark.parametrize(
    ("item", "fault"), [(Faulty(scheme), fault) for scheme, fault in EACH], ids=str
)
def test_a_fault_is_seen(
    item: Faulty, fault: str, served: Reader, checkpoint: Checkpoint, folder: Path
) -> None:
    found, cpu = (served(each.name).only for each in item.scenarios(checkpoint, folder))
    assert_red(fault, found, cpu, item.made(checkpoint, folder).truth)
