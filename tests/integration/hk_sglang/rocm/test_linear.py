"""Layers of quantised checkpoints, and who computes them on what SGLang takes for an MI355X."""

from __future__ import annotations

import re

import pytest

from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.hk_sglang.rocm.conftest import Sessions
from tests.integration.shared.linear.devices import GFX950, unserved
from tests.integration.shared.linear.rotated import only_hk

NAMES = [name for name in CHECKPOINTS if not name.startswith("hk-")]


@pytest.mark.parametrize("name", NAMES)
def test_who_computes_a_layer(name: str, sessions: Sessions) -> None:
    """HK computes each layer that gfx950 has kernels for. SGLang handles the others as it does
    without HK: by its own method, or with an error.

    A rotated layer without a kernel of HK's is an error, whatever SGLang would choose.
    """
    layers, log = sessions.linear_layers()
    stock, found = (layers[phase][name] for phase in ("untouched", "on"))
    why = unserved(GFX950, CHECKPOINTS[name])
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
        said = rf"is left to SGLang, which stops there: {why}"
        assert any(re.search(said, line) for line in log)
