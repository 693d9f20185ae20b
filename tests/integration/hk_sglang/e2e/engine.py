"""An SGLang engine whose schedulers answer the tests' questions, over SGLang's `collective_rpc`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sglang.srt.entrypoints.engine import Engine
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.managers.scheduler import Scheduler, run_scheduler_process
from sglang.srt.runtime_context import get_parallel

from tests.integration.shared.e2e.inside import hide_instructions, install_mutation, look
from tests.integration.shared.e2e.scenario import Batch, save


def run_probed_scheduler(*args: Any, **kwargs: Any) -> None:
    """Run in the scheduler's process, before any plugin is loaded there."""
    hide_instructions()
    probe()
    run_scheduler_process(*args, **kwargs)


class ProbedEngine(Engine):  # type: ignore[misc]
    """An engine whose schedulers answer `test_begin` and `test_look` too."""

    run_scheduler_process_func = staticmethod(run_probed_scheduler)


def probe() -> None:
    """Let every scheduler of this process note its batches, and take the calls below."""
    run_batch = Scheduler.run_batch

    def noted(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        batches.append(composition(batch))
        return run_batch(self, batch, *args, **kwargs)

    Scheduler.run_batch = noted
    Scheduler.test_begin = begin
    Scheduler.test_look = write_down


batches: list[Batch] = []
"""Batches since the round began."""


def composition(batch: Any) -> Batch:
    """A batch's composition, before it is run; lengths are the scheduler's, not HK's input."""
    if not batch.forward_mode.is_extend():
        return Batch(len(batch.reqs), 0, 0, 0, 0)
    return Batch.of(list(zip(batch.extend_lens, batch.prefix_lens, strict=True)))


def begin(self: Any, mutation: str) -> None:
    """Begin a round with this fault."""
    batches.clear()
    install_mutation(mutation)


def write_down(self: Any, path: str) -> None:
    """Write what this process is and did to PATH.RANK, and its batches to PATH.batches."""
    model, rank = self.tp_worker.model_runner.model, get_parallel().tp_rank
    beside = getattr(model, "attention_instances", ())  # a model that transformers makes
    layers = sum(isinstance(module, RadixAttention) for module in model.modules()) or len(beside)
    save([look(layers)], Path(f"{path}.{rank}"))
    if rank == 0:
        save(batches, Path(f"{path}.batches"))
