"""Finds who computes a layer of each checkpoint, in an SGLang that takes itself for an MI355X's.

Each layer is made by SGLang alone, and then again after SGLang's own loader has loaded the plugin.
The code objects say what gfx950 serves; nothing is computed.
"""

from __future__ import annotations

from typing import Any


def found() -> dict[str, dict[str, dict[str, str]]]:
    """The layers before and after the plugin is loaded, in a process with HK_BACKEND=1."""
    from sglang.srt.plugins import load_plugins

    untouched = layers()
    load_plugins()
    return {"untouched": untouched, "on": layers()}


def layers() -> dict[str, dict[str, str]]:
    from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS

    names = (name for name in CHECKPOINTS if not name.startswith("hk-"))
    return {name: layer(CHECKPOINTS[name].config) for name in names}


def layer(config: dict[str, Any]) -> dict[str, str]:
    """The method that SGLang gives to a layer, and HK's reason; or SGLang's error."""
    import torch

    from tests.integration.hk_sglang.linear_layers import config_of, merged, rank
    from tests.integration.shared.checkpoints import WIDTHS, K
    from tests.integration.shared.linear.devices import GFX950

    with rank(device=GFX950):
        try:
            made = merged(config_of(config), torch.bfloat16, K, WIDTHS)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
    method, scheme = made.quant_method, getattr(made, "scheme", None)
    kinds = [type(each).__name__ for each in (method, scheme) if each is not None]
    return {"method": " of ".join(kinds), "left": getattr(made, "hk_left", "")}
