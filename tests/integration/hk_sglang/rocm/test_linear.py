"""Who computes layers of quantised checkpoints in an SGLang that takes itself for an MI355X's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.shared.linear.devices import GFX950, unserved
from tests.integration.shared.linear.rotated import only_hk
from tests.models import ROOT

NAMES = [name for name in CHECKPOINTS if not name.startswith("hk_")]


@cache
def session() -> dict[str, Any]:
    """The answers of `linear_session` in a process of its own."""
    steering = ("HK_", "SGLANG_")
    environment = {name: v for name, v in os.environ.items() if not name.startswith(steering)}
    run = subprocess.run(
        [sys.executable, "-m", "tests.integration.hk_sglang.rocm.linear_session"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found | {"log": run.stderr}


@pytest.mark.parametrize("name", NAMES)
def test_who_computes_a_layer(name: str) -> None:
    """HK what gfx950 has kernels for; the rest SGLang's own method, or its error, as without HK.

    Nobody a rotated layer that HK has no kernel for, whatever SGLang would choose."""
    stock, found = (session()[phase][name] for phase in ("untouched", "on"))
    why = unserved(GFX950, CHECKPOINTS[name].scale_kind)
    if not why:
        assert found == {"method": "HKLinearMethod", "left": ""}
    elif rotation := CHECKPOINTS[name].rotation:
        expected = only_hk(why, rotation, layer="model.qkv_proj")
        assert re.match(f"(?s)RotationError: {expected}", found["error"])
    elif "method" in stock:
        assert found["method"] == stock["method"]
        assert re.search(why, found["left"])
    else:
        assert found == stock
        assert re.search(rf"is left to SGLang, which stops there: {why}", session()["log"])
