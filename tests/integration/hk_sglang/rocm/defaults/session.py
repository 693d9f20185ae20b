"""Holds cells of the matrix of SGLang's defaults, in a process that takes itself for an MI355X's.

    SGLANG_USE_AITER=0|1 python -m tests.integration.hk_sglang.rocm.defaults.session

A request per line of stdin, as JSON: a cell's attention, setting and traffic, and the name of a
fault. An answer per line of stdout: what the table says of it, or why it is red.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import pytest
import torch

from tests.integration.hk_sglang.rocm import aiter_kernels, machine


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # SGLang prints
    machine.pretend()
    aiter_kernels.install()
    from sglang.srt.plugins import load_plugins

    load_plugins()
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), file=answers, flush=True)


@torch.no_grad()
def answer(place: list[str], fault: str) -> dict[str, Any]:
    """Of the cell at `place`, with a fault by name, or none."""
    from hk_backend.routing.routes import routes
    from tests.integration.hk_sglang.rocm.defaults.faults import install
    from tests.integration.hk_sglang.rocm.defaults.run import hold
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
