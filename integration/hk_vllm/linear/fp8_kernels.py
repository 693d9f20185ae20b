"""HK's kernels for FP8 weights, in vLLM's lists of linear kernels."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.kernels.linear.scaled_mm.BlockScaledMMLinearKernel import (
    Fp8BlockScaledMMLinearKernel,
)
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
    FP8ScaledMMLinearKernel,
)
from vllm.platforms import current_platform

from hk_backend.engine.linear.packed_layer import FORMAT_OF, pack_layer, release
from hk_backend.ops import LinearRequest
from hk_backend.terms.verdict import Verdict, refused
from hk_vllm.linear.created import blocks_verdict
from hk_vllm.linear.kernel import HKKernel
from hk_vllm.linear.kernel_keys import activations_of, fp8_verdict, scale_kind_of


class HKFp8Kernel(HKKernel):
    """Mixin for FP8 weights."""

    def activations(self) -> str:
        """HK's name for the rounding of activations."""
        return activations_of(self.config.activation_quant_key)

    def request(self, layer: Any) -> LinearRequest:
        weight, (n, k) = self.config.weight_quant_key, self.config.weight_shape
        return LinearRequest(
            current_platform.device_type,
            self.config.input_dtype,
            FORMAT_OF[weight.dtype],
            n,
            k,
            self.activations(),
            scale_kind_of(weight),
        )


class HKFp8LinearKernel(HKFp8Kernel, FP8ScaledMMLinearKernel):  # type: ignore[misc]
    """Kernel for FP8 weights with a scale per tensor or output channel, and FP8 activations."""

    listed_in = "_POSSIBLE_FP8_KERNELS"

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        activations = activations_of(config.activation_quant_key)
        if activations not in ("token", "tensor"):
            return refused(f"activations quantised per {config.activation_quant_key.scale}")
        kind = scale_kind_of(config.weight_quant_key)
        if kind not in ("tensor", "channel"):
            return refused(f"weight scales per {config.weight_quant_key.scale}")
        return fp8_verdict(config, activations, kind)

    def codes_key(self) -> Any:
        return self.config.activation_quant_key

    def pack(self, layer: Any) -> None:
        """Packs a weight `[K, N]` from vLLM's schemes, with a scale for each channel or for all."""
        self._pack(layer, layer.weight.data.t())

    def process_checkpoint(self, layer: Any) -> None:
        """Packs the checkpoint's own tensors: a weight `[N, K]`, and the scale of each shard."""
        self._pack(layer, layer.weight.data)

    def _pack(self, layer: Any, weight: torch.Tensor) -> None:
        static: bool = self.config.activation_quant_key.scale.static
        pack_layer(
            layer,
            weight,
            FORMAT_OF[weight.dtype],
            layer.weight_scale,
            activations=self.activations(),
            static=static,
        )
        release(layer, "weight_scale", "input_scale")
        if static:
            layer.input_scale = layer.hk_input_scale  # vLLM's fused kernels read it there

    def apply_scaled_mm(self, **_: Any) -> torch.Tensor:
        raise NotImplementedError("apply_weights computes the whole layer")


class HKWeightOnlyFp8LinearKernel(HKFp8LinearKernel):
    """Kernel for FP8 weights with scales of any kind, and unquantised activations."""

    listed_in = "_POSSIBLE_WFP8A16_KERNELS"

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        kind = scale_kind_of(config.weight_quant_key)
        if not kind:
            return refused(f"weight scales per {config.weight_quant_key.scale}")
        return fp8_verdict(config, "none", kind)

    def codes_key(self) -> None:
        return None

    def activations(self) -> str:
        return "none"

    def pack(self, layer: Any) -> None:
        blocks = getattr(layer, "weight_scale_inv", None)
        weight = layer.weight.data
        if blocks is None:
            weight, scales = weight.t(), layer.weight_scale
        else:
            scales = blocks.float()  # it is weight_scale in the checkpoint
        pack_layer(layer, weight, FORMAT_OF[weight.dtype], scales)
        release(layer, "weight_scale", "weight_scale_inv", "input_scale")


class HKFp8BlockLinearKernel(HKFp8Kernel, Fp8BlockScaledMMLinearKernel):  # type: ignore[misc]
    """Kernel for FP8 weights in 128x128 blocks, and FP8 activations per token and 128 channels."""

    listed_in = "_POSSIBLE_FP8_BLOCK_KERNELS"

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        activations = activations_of(config.activation_quant_key)
        if activations != "token_block":
            return refused(f"activations quantised per {config.activation_quant_key.scale}")
        if scale_kind_of(config.weight_quant_key) != "block":
            return refused(f"weight scales per {config.weight_quant_key.scale}")
        blocks = blocks_verdict()
        return fp8_verdict(config, activations, "block") if blocks else blocks

    def codes_key(self) -> Any:
        return self.config.activation_quant_key

    def pack(self, layer: Any) -> None:
        params = self._get_layer_params(layer)
        name = params.block_scale_attr
        pack_layer(
            layer,
            layer.weight.data,
            FORMAT_OF[layer.weight.dtype],
            params.block_scale.float(),
            activations=self.activations(),
            names={"scales": name},
        )
        release(layer, name, "input_scale")

    def apply_block_scaled_mm(self, *_: Any, **__: Any) -> torch.Tensor:
        raise NotImplementedError("apply_weights computes the whole layer")
