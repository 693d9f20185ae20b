"""Memory that HK's launches share, after SGLang has released memory and resumed it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hk_sglang import sleeping
from sglang.srt.managers.io_struct import (
    ReleaseMemoryOccupationReqInput,
    ResumeMemoryOccupationReqInput,
)
from sglang.srt.managers.scheduler_components.weight_updater import (
    SchedulerWeightUpdaterManager as Manager,
)

from hk_backend.engine.patching import MARK
from tests.integration.adapter import Environment
from tests.integration.hk_sglang.attention.engine import routed
from tests.integration.shared.attention.gpu import emulated_gpu

RELEASE, RESUME = ReleaseMemoryOccupationReqInput, ResumeMemoryOccupationReqInput


def test_counters_are_zero_once_all_memory_is_back(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts come back one by one. Before the last one, HK's memory may not be mapped."""
    environment(HK_DEVICE="hip")
    stock = Manager.resume_memory_occupation
    monkeypatch.setattr(Manager, "resume_memory_occupation", stock)  # put back at the end
    monkeypatch.setattr(torch.distributed, "barrier", lambda group: None)
    runner = SimpleNamespace(model=torch.nn.Linear(2, 2), device="cpu")
    manager = SimpleNamespace(
        offload_tags=set(),
        memory_saver_adapter=SimpleNamespace(pause=lambda tag: None, resume=lambda tag: None),
        tp_worker=SimpleNamespace(model_runner=runner),
        tp_cpu_group=None,
        scheduler=None,
        flush_cache=lambda: None,
        is_fully_idle=lambda ignore_waiting: True,
        _assert_weight_cache_inactive=lambda name: None,
    )
    sleeping.install()
    with emulated_gpu(monkeypatch) as device:
        held = device.workspaces.of(0, device.memory.stream(0), 1024)
        Manager.release_memory_occupation(manager, RELEASE())
        held.arrived.fill_(3)
        for part in ("kv_cache", "cuda_graph"):
            Manager.resume_memory_occupation(manager, RESUME(tags=[part]))
            assert held.arrived.all(), "the weights are still released"
        Manager.resume_memory_occupation(manager, RESUME(tags=["weights"]))
        assert not held.arrived.any()


def test_the_attention_route_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = getattr(Manager.resume_memory_occupation, MARK, Manager.resume_memory_occupation)
    monkeypatch.setattr(Manager, "resume_memory_occupation", stock)
    with routed():
        assert hasattr(Manager.resume_memory_occupation, MARK)
