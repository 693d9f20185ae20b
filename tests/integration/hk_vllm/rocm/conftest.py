"""The backends of vLLM's ROCm platform, on this machine's CPU and an emulated GPU."""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm.rocm import torch_kernels
from tests.integration.hk_vllm.rocm.parents import LAYER_PARENTS, Parent


@pytest.fixture(params=LAYER_PARENTS, ids=str)
def parent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Parent:
    """Each layout in turn, its kernels replaced for the length of a test."""
    chosen: Parent = request.param
    torch_kernels.install(monkeypatch)
    chosen.answer_shuffled(monkeypatch)
    return chosen
