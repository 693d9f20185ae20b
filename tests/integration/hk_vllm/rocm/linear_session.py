"""Make a layer of every checkpoint on vLLM's own ROCm platform, with one MI355X: JSON on stdout.

    python -m tests.integration.hk_vllm.rocm.linear_session [--aiter]

Each three times, with the plugin loaded by vLLM's own loader: as vLLM came, with HK_BACKEND=0, with
HK_BACKEND=1. What gfx950 serves is asked of its code objects; nothing is computed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.integration.hk_vllm.rocm import rocm_platform
from tests.integration.hk_vllm.rocm.selector_session import load_plugins

KERNELS = ("fp8_linear", "linear_kernel", "kernel", "ocp_mx_linear")
"""Where vLLM's methods keep a layer's kernel."""


def main(aiter: bool) -> None:
    rocm_platform.pretend("gfx950", aiter)
    answers: dict[str, Any] = {}
    from tests.integration.hk_vllm.linear_layers import alone

    with alone():
        for phase, hk_backend in (("untouched", None), ("off", "0"), ("on", "1")):
            if hk_backend is not None:
                load_plugins(hk_backend)
            answers[phase] = {"lists": lists(), "layers": layers()}
    json.dump(answers, sys.stdout)


def lists() -> dict[str, list[str]]:
    """The kernels that vLLM tries on ROCm, in their order, by kind of layer."""
    from vllm.model_executor.kernels import linear
    from vllm.platforms import PlatformEnum

    return {
        name: [kernel.__name__ for kernel in by_platform.get(PlatformEnum.ROCM, [])]
        for name, by_platform in vars(linear).items()
        if name.startswith("_POSSIBLE_") and isinstance(by_platform, dict)
    }


def layers() -> dict[str, dict[str, str]]:
    from tests.integration.shared.checkpoints import LAYERS

    names = (name for name in LAYERS if not name.startswith("hk-"))
    return {name: layer(LAYERS[name].config) for name in names}


def layer(config: dict[str, Any]) -> dict[str, str]:
    """The kernel that vLLM gives to a layer; or its error."""
    import torch

    from hk_backend.config import get_config
    from hk_backend.devices.hip.emulated import emulated_device
    from tests.integration.hk_vllm.linear_layers import config_of, merged
    from tests.integration.shared.checkpoints import WIDTHS, K
    from tests.integration.shared.linear.devices import GFX950

    os.environ["HK_DEVICE"] = GFX950
    get_config.cache_clear()
    emulated_device("gfx950").memory.tensors_on = "cuda"  # as this platform's tensors say
    try:
        made = merged(config_of(config), torch.bfloat16, K, WIDTHS)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    scheme = getattr(made, "scheme", None) or made.quant_method
    kernels = (getattr(scheme, name, None) for name in KERNELS)
    kernel = next((kernel for kernel in kernels if kernel is not None), scheme)
    return {"kernel": type(kernel).__name__}


if __name__ == "__main__":
    main("--aiter" in sys.argv)
