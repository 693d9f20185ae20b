"""Checks cells of the matrix of SGLang's defaults, in a process that takes itself for an MI355X's.

    SGLANG_USE_AITER=0|1 python -m tests.integration.hk_sglang.rocm.defaults.session

Input is JSON on stdin: cells, each as attention, setting and traffic. Output is JSON on stdout. It
has the findings of linear_session and their log (null with SGLANG_USE_AITER=1). For each cell it
has the table's words, or the error that makes the cell red.
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
from tests.integration.hk_sglang.rocm import aiter_kernels, linear_session, machine


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # SGLang prints to stdout
    machine.pretend()
    linear = None
    if os.environ["SGLANG_USE_AITER"] == "0":
        # a child, since this process goes on without what is loaded there
        done = forked(linear_session.found, HK_BACKEND="1")
        linear = [done.result, done.log]
    aiter_kernels.install()
    from sglang.srt.plugins import load_plugins

    load_plugins()
    torch.set_num_threads(1)
    json.dump([linear, [answer(place) for place in json.load(sys.stdin)]], answers)


@torch.no_grad()
def answer(place: list[str]) -> dict[str, Any]:
    """Check the cell at `place`."""
    from hk_backend.routing.routes import routes
    from tests.integration.hk_sglang.rocm.defaults.run import hold
    from tests.integration.hk_sglang.rocm.defaults.settings import MATRIX, SETTINGS
    from tests.integration.shared.defaults.table import Place
    from tests.integration.shared.defaults.table import place as place_of

    [cell] = [cell for cell in MATRIX if place_of(cell) == Place(*place)]
    routes.reset()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS[cell.setting].environment.items():
            patch.setenv(name, value)
        try:
            return {"found": hold(cell, routes.counters("attention"))}
        except (Exception, pytest.fail.Exception):
            return {"error": traceback.format_exc()}


if __name__ == "__main__":
    main()
