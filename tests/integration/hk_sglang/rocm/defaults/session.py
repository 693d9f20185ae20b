"""Holds cells of the matrix of SGLang's defaults, in a process that takes itself for an MI355X's.

    SGLANG_USE_AITER=0|1 python -m tests.integration.hk_sglang.rocm.defaults.session

The first line of stdout, JSON as all of them: what linear_session found, and its log; null with
SGLANG_USE_AITER=1. Then a request per line of stdin: a cell's attention, setting and traffic, and
the name of a fault. An answer per line of stdout: what the table says of it, or why it is red.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import pytest
import torch

from tests.integration.hk_sglang.forked import forked
from tests.integration.hk_sglang.rocm import aiter_kernels, linear_session, machine, triton_kernels


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # SGLang prints
    machine.pretend()
    print(json.dumps(linear_layers()), file=answers, flush=True)
    aiter_kernels.install()
    triton_kernels.install()
    from sglang.srt.plugins import load_plugins

    load_plugins()
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), file=answers, flush=True)


def linear_layers() -> list[Any] | None:
    """A child finds it, since this process goes on without what was loaded there."""
    if os.environ["SGLANG_USE_AITER"] == "1":
        return None
    done = forked(linear_session.found, HK_BACKEND="1")
    return [done.result, done.log]


@torch.no_grad()
def answer(place: list[str], fault: str) -> dict[str, Any]:
    """Hold the cell at `place`, with the fault of that name, or none."""
    from hk_backend.routing.routes import routes
    from tests.integration.hk_sglang.rocm.defaults.run import hold, install
    from tests.integration.hk_sglang.rocm.defaults.settings import MATRIX, SETTINGS
    from tests.integration.shared.defaults.table import Place
    from tests.integration.shared.defaults.table import place as place_of

    [cell] = [cell for cell in MATRIX if place_of(cell) == Place(*place)]
    routes.reset()
    counters = routes.counters("attention")
    told: list[None] = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS[cell.setting].environment.items():
            patch.setenv(name, value)
        if fault:
            install(fault, patch, lambda: told.append(None))
        try:
            return {"found": hold(cell, counters)}
        except (Exception, pytest.fail.Exception) as error:
            said = f"{type(error).__name__}: {error} {counters.served} {dict(counters.fallbacks)}"
            return {"error": said, "trace": traceback.format_exc(), "faulty": len(told)}


if __name__ == "__main__":
    main()
