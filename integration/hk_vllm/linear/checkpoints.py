"""What of a checkpoint has to be read before vLLM's schemes change it.

vLLM requantises merged shards that have a scale each (q, k and v, say) to their largest: HK takes
every shard's own scale, as one scale per output channel, which is exact. And a scale that the
checkpoint lacks is told from one that it has: vLLM leaves such a tensor as it was allocated.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from vllm.model_executor.layers.quantization.compressed_tensors import compressed_tensors
from vllm.model_executor.layers.quantization.compressed_tensors.schemes import (
    CompressedTensorsW4A4Mxfp4,
    CompressedTensorsW8A8Fp8,
    CompressedTensorsW8A8Mxfp8,
    CompressedTensorsW8A16Fp8,
)
from vllm.model_executor.layers.quantization.fp8 import Fp8LinearMethod
from vllm.model_executor.layers.quantization.modelopt import ModelOptLinearMethod
from vllm.model_executor.layers.quantization.quark.schemes import QuarkOCP_MX, QuarkW8A8Fp8
from vllm.model_executor.utils import is_weights_pre_processed

from hk_vllm.linear.layer import UNSET, UNSET_MX, CheckpointError, shard_names, shard_widths
from hk_vllm.linear.tensor_names import was_loaded

MARK = "hk_original"
FP8_METHODS = {
    Fp8LinearMethod: "fp8_linear",
    CompressedTensorsW8A8Fp8: "fp8_linear",
    QuarkW8A8Fp8: "fp8_linear",
    ModelOptLinearMethod: "kernel",
}
"""vLLM's methods that may requantise an FP8 checkpoint, and where each keeps its kernel."""
MX_METHODS = {
    CompressedTensorsW4A4Mxfp4: "kernel",
    CompressedTensorsW8A8Mxfp8: "kernel",
    ModelOptLinearMethod: "kernel",
    QuarkOCP_MX: "ocp_mx_linear",
}
"""vLLM's methods for microscaling formats, likewise."""


def install() -> None:
    """Change those methods where their kernel is HK's; harmless to call again."""
    for method, kernel in FP8_METHODS.items():
        _wrap(method, "process_weights_after_loading", functools.partial(_process, kernel))
    for method, kernel in MX_METHODS.items():
        _wrap(method, "create_weights", functools.partial(_create, kernel))
    config = compressed_tensors.CompressedTensorsConfig
    _wrap(config, "_get_scheme_from_parts", _keep_activations)


def _wrap(owner: Any, name: str, around: Any) -> None:
    """Let `around(original, self, ...)` stand for a method of `owner`."""
    original = getattr(owner, name)
    if hasattr(original, MARK):
        return

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(original, self, *args, **kwargs)

    setattr(wrapper, MARK, original)
    setattr(owner, name, wrapper)


def _process(kernel_name: str, original: Any, method: Any, layer: Any) -> None:
    process = getattr(getattr(method, kernel_name, None), "process_checkpoint", None)
    if process is None or is_weights_pre_processed():
        original(method, layer)
    else:
        process(layer)


def _create(kernel_name: str, original: Any, method: Any, *args: Any, **kwargs: Any) -> None:
    """Mark mx scales, so that one which is never loaded is not taken for one that was."""
    from hk_vllm.linear.kernels import HKMxKernel

    original(method, *args, **kwargs)
    layer = kwargs["layer"] if "layer" in kwargs else args[0]
    kernel = getattr(method, kernel_name, None)
    if isinstance(kernel, HKMxKernel):
        layer.weight_scale.data.fill_(UNSET_MX)
        kernel.weight_only = kernel.weight_only or getattr(method, "hk_weight_only", False)


def _keep_activations(
    original: Any, config: Any, weight_quant: Any, input_quant: Any, *args: Any, **kwargs: Any
) -> Any:
    """vLLM tells no mx kernel that a compressed-tensors checkpoint leaves activations alone, and
    stops at one with FP8 blocks: it expects False where it has None itself."""
    scheme = original(config, weight_quant, input_quant, *args, **kwargs)
    if input_quant is None:
        if type(scheme) in MX_METHODS:
            scheme.hk_weight_only = True
        elif isinstance(scheme, CompressedTensorsW8A16Fp8):
            scheme.is_static_input_scheme = False
    return scheme


def as_channels(layer: Any, scales: torch.Tensor) -> torch.Tensor:
    """FP8 scales as the checkpoint has them, one per shard or output channel, as one per channel.

    Raises:
        CheckpointError: the checkpoint lacks one.
    """
    widths = shard_widths(layer) or [len(layer.weight)]
    values = scales.data.float().flatten()
    if values.numel() != len(widths):
        return values  # per channel already
    values = _loaded(layer, values, "weight_scale")
    return values.repeat_interleave(torch.tensor(widths, device=values.device))


def one_input_scale(layer: Any) -> torch.Tensor:
    """The static scale of a layer's activations: that of the shard with the largest.

    Raises:
        CheckpointError: the checkpoint lacks one.
    """
    scale = layer.input_scale
    if scale is None:
        raise CheckpointError(f"{shard_names(layer, 'input_scale')[0]}: not in the checkpoint")
    values = _loaded(layer, scale.data.float().flatten(), "input_scale")
    # NaN and infinity must not get lost in the maximum: pack_weight refuses them by name
    broken = ~(values.isfinite() & (values > 0))
    return values[broken][:1] if bool(broken.any()) else values.max().reshape(1)


def _loaded(layer: Any, values: torch.Tensor, parameter: str) -> torch.Tensor:
    """Scales of shards, all of them read from the checkpoint.

    A checkpoint may hold a merged layer with one scale: vLLM loads that as the first shard's.
    """
    missing = values == UNSET
    if not bool(missing.any()):
        return values
    names = shard_names(layer, parameter)
    if not bool(missing[0]) and bool(missing[1:].all()) and not was_loaded(names[0]):
        return values[:1].expand_as(values)
    index = int(missing.nonzero()[0])
    name = names[index] if len(names) == len(values) else names[0]
    raise CheckpointError(f"{name}: not in the checkpoint")
