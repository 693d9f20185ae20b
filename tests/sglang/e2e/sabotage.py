"""What can be broken in SGLang before an engine starts, and what in HK (tests/e2e/sabotage.py)."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e import sabotage


def float32_everywhere() -> None:
    """SGLang's quantisation methods take float32 models, which most say they do not.

    In float32 an answer differs from the truth by what is wrong, not by what is rounded.
    """
    import torch
    from sglang.srt.layers.quantization import QUANTIZATION_METHODS

    everything = [torch.float32, torch.float16, torch.bfloat16]
    for name in ("fp8", "compressed-tensors", "quark", "modelopt"):
        QUANTIZATION_METHODS[name].get_supported_act_dtypes = lambda *_: everything


SABOTAGES: dict[str, Callable[[], None]] = sabotage.SABOTAGES | {
    float32_everywhere.__name__: float32_everywhere
}
