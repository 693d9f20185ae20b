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
from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape

from hk_backend.engine.linear.packed_layer import FORMAT_OF, pack_layer, release
from hk_backend.ops import LinearRequest
from hk_backend.terms.verdict import Verdict, refused
from hk_backend.terms.weight_format import FP8_BLOCK
from hk_vllm.linear.created import blocks_verdict
from hk_vllm.linear.kernel import HKKernel
from hk_vllm.linear.layer import device_type, verdict_on


class HKFp8Kernel(HKKernel):
    """Mixin for FP8 weights."""

    def activations(self) -> str:
        """HK's name for the rounding of activations."""
        return activations_of(self.config.activation_quant_key)

    def request(self, layer: Any) -> LinearRequest:
        return fp8_request(self.config, self.activations())


class HKFp8LinearKernel(HKFp8Kernel, FP8ScaledMMLinearKernel):  # type: ignore[misc]
    """Kernel for FP8 weights with a scale per tensor or output channel, and FP8 activations."""

    listed_in = "_POSSIBLE_FP8_KERNELS"

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        activations = activations_of(config.activation_quant_key)
        if activations not in ("token", "tensor"):
            return refused(f"activations quantised per {config.activation_quant_key.scale}")
        if scale_kind_of(config.weight_quant_key) not in ("tensor", "channel"):
            return refused(f"weight scales per {config.weight_quant_key.scale}")
        return fp8_verdict(config, activations)

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
        if not scale_kind_of(config.weight_quant_key):
            return refused(f"weight scales per {config.weight_quant_key.scale}")
        return fp8_verdict(config, "none")

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
        return blocks_verdict() and fp8_verdict(config, activations)

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


# -- vLLM's configurations of these kernels in HK's names


BLOCK = GroupShape(FP8_BLOCK, FP8_BLOCK)


def activations_of(key: Any) -> str:
    """HK's name for the activations of vLLM's key; empty if HK does not support them."""
    group = key.scale.group_shape
    if group.is_per_tensor():
        return "tensor"
    if key.scale.static:
        return ""
    if group.is_per_token():
        return "token"
    return "token_block" if group == GroupShape(1, FP8_BLOCK) else ""


def scale_kind_of(key: Any) -> str:
    """HK's name for what shares a weight scale; empty if HK has none."""
    group = key.scale.group_shape
    if group.is_per_tensor():
        return "tensor"
    if group.is_per_channel() or group.is_per_token():  # a row of the weight either way
        return "channel"
    return "block" if group == BLOCK else ""


def fp8_request(config: Any, activations: str) -> LinearRequest:
    """HK's request for a layer with FP8 weights."""
    weight, (n, k) = config.weight_quant_key, config.weight_shape
    facts = device_type(), config.input_dtype, FORMAT_OF[weight.dtype], n, k, activations
    return LinearRequest(*facts, scale_kind_of(weight), config.out_dtype)


def fp8_verdict(config: Any, activations: str) -> Verdict:
    if config.weight_quant_key.dtype not in FORMAT_OF:
        return refused(f"a weight in {config.weight_quant_key.dtype}")
    return verdict_on(fp8_request(config, activations))
