"""A worker of vLLM that sleeps and wakes by vLLM's own code, without its allocator."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch


def sleeper(model: torch.nn.Module, lose: Callable[[], None], patch: pytest.MonkeyPatch) -> Any:
    """Makes a worker with `model`, for `Worker.sleep` and `Worker.wake_up`.

    Args:
        lose: changes the memory that a sleep at level 2 loses.
    """
    patch.setattr(torch.accelerator, "synchronize", lambda: None)
    patch.setattr(torch.accelerator, "get_memory_info", lambda: (0, 0))
    backend = SimpleNamespace(
        suspend=lambda level: lose(), resume=lambda tags: None, discard=lambda tags: lose()
    )
    return SimpleNamespace(
        model_runner=SimpleNamespace(model=model),
        sleep_mode_backend=backend,
        vllm_config=SimpleNamespace(model_config=SimpleNamespace(enable_nccl_comm_suspend=False)),
        get_draft_model=lambda: None,
        synchronize_device=lambda: None,
        _save_sleep_parameters=lambda model: None,
        _sleep_saved_parameters={},
        _sleep_saved_buffers={},
        _sleep_saved_draft_buffers={},
    )
