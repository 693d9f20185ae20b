"""Make a layer of every checkpoint in an SGLang that takes itself for an MI355X's: JSON on stdout.

    python -m tests.integration.hk_sglang.rocm.linear_session

Each as SGLang came, and with the plugin loaded by SGLang's own loader. What gfx950 serves is asked
of its code objects; nothing is computed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.integration.hk_sglang.rocm import machine


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # SGLang prints
    machine.pretend()
    found = {"untouched": layers()}
    os.environ["HK_BACKEND"] = "1"
    from sglang.srt.plugins import load_plugins

    load_plugins()
    found["on"] = layers()
    print(json.dumps(found), file=answers, flush=True)


def layers() -> dict[str, dict[str, str]]:
    from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS

    names = (name for name in CHECKPOINTS if not name.startswith("hk_"))
    return {name: layer(CHECKPOINTS[name].config) for name in names}


def layer(config: dict[str, Any]) -> dict[str, str]:
    """The method that SGLang gives to a layer, and HK's reason; or SGLang's error."""
    import torch

    from tests.integration.hk_sglang.linear_layers import config_of, merged, rank
    from tests.integration.shared.linear.devices import GFX950
    from tests.integration.shared.linear_checkpoints import WIDTHS, K

    with rank(device=GFX950):
        try:
            made = merged(config_of(config), torch.bfloat16, K, WIDTHS)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
    method, scheme = made.quant_method, getattr(made, "scheme", None)
    kinds = [type(each).__name__ for each in (method, scheme) if each is not None]
    return {"method": " of ".join(kinds), "left": getattr(made, "hk_left", "")}


if __name__ == "__main__":
    main()
