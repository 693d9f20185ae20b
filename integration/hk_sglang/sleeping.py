"""The moment when a server that released memory has all of it again.

SGLang releases and resumes memory in parts, by their tags. HK's own memory lies in one of them, or
in none: wherever SGLang was when HK first needed it.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager

from hk_backend.devices import device_for
from hk_backend.engine.patching import wrap


def install() -> None:
    """Changes SGLang's scheduler; harmless to call again."""
    wrap(SchedulerWeightUpdaterManager, "resume_memory_occupation", _resume)


def _resume(original: Any, manager: Any, request: Any) -> Any:
    """Restores HK's memory once no part is released: before, it may not be mapped."""
    found = original(manager, request)
    if not manager.offload_tags:
        device_for(torch.device(manager.tp_worker.model_runner.device).type).restore()
    return found
