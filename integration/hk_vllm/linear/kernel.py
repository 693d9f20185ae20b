"""The base of HK's linear kernels in vLLM: reads a layer's parameters, packs them once, computes.

A layer's parameters are as vLLM's schemes leave them. Where vLLM's next kernel was measured to be
faster, the layer is handed over to it (next_kernel.py).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from hk_backend.engine.linear.packed_layer import is_released
from hk_backend.ops import LinearRequest
from hk_backend.terms.verdict import Verdict
from hk_vllm.linear.codes import announced, multiply
from hk_vllm.linear.created import verdict_on_created
from hk_vllm.linear.next_kernel import theirs_for

Answer = tuple[bool, str | None]


class HKKernel:
    """Mixin with all that HK's kernel classes share. Each class has its own `verdict` and
    `pack`."""

    config: Any
    listed_in: ClassVar[str]
    """vLLM's list (module vllm.model_executor.kernels.linear) that the class is in."""
    weight_name = "weight"
    """Name of the weight in the checkpoint; checkpoints.py sets this and `rotation`."""
    rotation = 0
    """Channels of the input that are rotated together, like those of the weight; 0: none."""

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        raise NotImplementedError

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> Answer:
        return True, None  # the verdict covers the device's limits, with the layer's facts

    @classmethod
    def can_implement(cls, config: Any) -> Answer:
        verdict = verdict_on_created() and cls.verdict(config)
        return verdict.ok, verdict.why or None

    def process_weights_after_loading(self, layer: Any) -> None:
        if is_released(layer):
            return
        theirs = theirs_for(
            self, layer, type(self).pack, lambda its, copy: its.process_weights_after_loading(copy)
        )
        if theirs is None:
            self.pack(layer)
        else:
            theirs.process_weights_after_loading(layer)

    def request(self, layer: Any) -> LinearRequest:
        """HK's request for `layer`, whose tensors have been loaded."""
        raise NotImplementedError

    def pack(self, layer: Any) -> None:
        raise NotImplementedError

    def codes_key(self) -> Any:
        """vLLM's key of the FP8 codes that this kernel multiplies; None if it takes none."""
        return None

    def input_quant_key(self) -> Any:
        return announced(self.codes_key())

    def apply_weights(
        self, layer: Any, x: Any, bias: torch.Tensor | None = None, **_: Any
    ) -> torch.Tensor:
        theirs = getattr(layer, "hk_theirs", None)
        if theirs is not None:
            computed: torch.Tensor = theirs.apply_weights(layer, x, bias)
            return computed
        out_dtype = getattr(self.config, "out_dtype", None)
        quantiser = getattr(self, "quant_fp8", None)
        return multiply(layer, x, bias, out_dtype, self.codes_key(), quantiser)
