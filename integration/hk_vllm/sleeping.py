"""The moment when a worker that slept has all of its memory again.

`wake_up` may give memory back in parts, by their tags. HK's own memory lies in either part, or in
none: wherever vLLM was when HK first needed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from hk_backend.devices import device_for
from hk_backend.engine.patching import wrap

TAGS = frozenset(("weights", "kv_cache"))
"""The parts that sleep until they are named (vllm/v1/executor/abstract.py, SLEEP_TAGS)."""

_lasting: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""The tensors that `lasting` made and that are in use, with copies on the host."""


def lasting(values: Sequence[float]) -> torch.Tensor:
    """A float32 tensor on torch's current device, which has its values again after a sleep.

    A sleep of level 2 loses what is allocated while a model loads, and vLLM restores buffers alone.
    """
    tensor = torch.tensor(values, dtype=torch.float32)
    _lasting[tensor] = torch.tensor(values, dtype=torch.float32, device="cpu")
    return tensor


def install() -> None:
    """Changes vLLM's worker on GPUs; harmless to call again."""
    from vllm.v1.worker.gpu_worker import Worker

    wrap(Worker, "sleep", _sleep)
    if hasattr(Worker, "discard"):  # not in every version
        wrap(Worker, "discard", _discard)
    wrap(Worker, "wake_up", _wake_up)


def _sleep(original: Any, worker: Any, *args: Any, **kwargs: Any) -> None:
    worker.hk_asleep = TAGS
    original(worker, *args, **kwargs)


def _discard(original: Any, worker: Any, tags: Iterable[str]) -> None:
    worker.hk_asleep = _asleep(worker) | set(tags)
    original(worker, tags)


def _wake_up(original: Any, worker: Any, tags: Iterable[str] | None = None) -> None:
    """Restores HK's memory once no part sleeps: before, it may not be mapped."""
    from vllm.platforms import current_platform

    original(worker, tags)
    worker.hk_asleep = _asleep(worker) - (TAGS if tags is None else set(tags))
    if not worker.hk_asleep:
        # vLLM's own backends do not write their slopes again, so rows that they compute stay wrong
        for tensor, copy in _lasting.items():
            tensor.copy_(copy)  # in place, as launches and graphs hold its address
        device_for(current_platform.device_type).restore()


def _asleep(worker: Any) -> frozenset[str]:
    found: frozenset[str] = getattr(worker, "hk_asleep", frozenset())
    return found
