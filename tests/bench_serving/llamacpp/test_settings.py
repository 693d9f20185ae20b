"""What llama.cpp's server is told, by its own parameters."""

from __future__ import annotations

from argparse import Namespace

import pytest

from bench_serving.llamacpp.server import settings
from hk_backend import machine

CORES = {0, 2, 5}


def told(**changes: object) -> Namespace:
    given = {"model": "a.gguf", "alias": "a", "host": "127.0.0.1", "port": 1, "slots": 3}
    return Namespace(**{**given, "context": 300, "cores": "", **changes})


def test_it_has_a_slot_for_each_request_and_room_for_the_longest() -> None:
    found = settings(told())
    assert (found.n_parallel, found.n_ctx) == (3, 3 * 512)  # whole steps of 256
    assert settings(told(context=256)).n_ctx == 3 * 256
    assert not found.fit_params  # else memory would decide


def test_it_has_a_thread_on_each_core_or_as_many_as_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: 7)
    free, bound = settings(told()), settings(told(cores="0, 2; 5"))
    for threads in (free.cpuparams, free.cpuparams_batch):
        assert (threads.n_threads, threads.mask_valid) == (7, False)
    for threads in (bound.cpuparams, bound.cpuparams_batch):
        assert (threads.n_threads, threads.mask_valid, threads.strict_cpu) == (3, True, True)
        assert {core for core, taken in enumerate(threads.cpumask) if taken} == CORES
