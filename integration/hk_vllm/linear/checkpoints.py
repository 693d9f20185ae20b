"""Wraps vLLM's schemes, so that HK reads a checkpoint's tensors before the schemes change them.

See hk_backend.engine.linear.checkpoint_tensors for the changes.
"""

from __future__ import annotations

import functools
from copy import copy
from typing import Any

from vllm.model_executor.layers.fusion.quant_activation import expose_input_quant_key
from vllm.model_executor.layers.quantization.compressed_tensors import compressed_tensors
from vllm.model_executor.layers.quantization.compressed_tensors.schemes import (
    CompressedTensorsW4A4Mxfp4,
    CompressedTensorsW8A8Fp8,
    CompressedTensorsW8A8Mxfp8,
    CompressedTensorsW8A16Fp8,
)
from vllm.model_executor.layers.quantization.fp8 import Fp8LinearMethod
from vllm.model_executor.layers.quantization.inc.schemes.inc_mxfp4_linear import (
    INCMxfp4LinearMethod,
)
from vllm.model_executor.layers.quantization.inc.schemes.inc_mxfp8_linear import (
    INCMxfp8LinearScheme,
)
from vllm.model_executor.layers.quantization.modelopt import ModelOptLinearMethod
from vllm.model_executor.layers.quantization.quark.schemes import QuarkOCP_MX, QuarkW8A8Fp8
from vllm.model_executor.utils import is_weights_pre_processed

from hk_backend.engine.foreign import foreign
from hk_backend.engine.linear.checkpoint_tensors import mark_unset
from hk_backend.engine.linear.compressed_tensors import rotation_of
from hk_backend.engine.linear.packed_layer import is_released, no_kernel
from hk_backend.engine.linear.rotated import no_other, only_hk
from hk_backend.engine.linear.shards import name_of
from hk_backend.engine.patching import wrap
from hk_vllm.linear.created import blocks_verdict, creating, latent_verdict, verdict_on_created
from hk_vllm.linear.kernel import HKKernel
from hk_vllm.linear.mx_kernels import HKMxKernel, weights_alone
from hk_vllm.linear.next_kernel import theirs_for
from hk_vllm.linear.rotated import check_served

FP8_METHODS = {
    Fp8LinearMethod: "fp8_linear",
    CompressedTensorsW8A8Fp8: "fp8_linear",
    QuarkW8A8Fp8: "fp8_linear",
    ModelOptLinearMethod: "kernel",
}
"""vLLM's methods that may requantise an FP8 checkpoint, and the attribute with their kernel."""
MX_METHODS = {
    CompressedTensorsW4A4Mxfp4: "kernel",
    CompressedTensorsW8A8Mxfp8: "kernel",
    ModelOptLinearMethod: "kernel",
    QuarkOCP_MX: "ocp_mx_linear",
    INCMxfp4LinearMethod: "kernel",
    INCMxfp8LinearScheme: "kernel",
}
"""vLLM's methods for microscaling formats, and the attribute with their kernel."""
METHODS = {**FP8_METHODS, CompressedTensorsW8A16Fp8: "linear_kernel", **MX_METHODS}
"""All of vLLM's methods whose kernel may be HK's."""


def install() -> None:
    """Changes those methods where their kernel is HK's; harmless to call again."""
    for method in METHODS:
        around = functools.partial(_process, FP8_METHODS.get(method, ""))
        wrap(method, "process_weights_after_loading", around)
    for method, kernel in METHODS.items():
        wrap(method, "create_weights", functools.partial(_create, kernel))
    config = compressed_tensors.CompressedTensorsConfig
    wrap(config, "_get_scheme_from_parts", _keep_parts)


def _process(kernel_name: str, original: Any, method: Any, layer: Any) -> None:
    if is_released(layer):
        return  # packed by an earlier call, and nothing was loaded since
    kernel = getattr(method, kernel_name, None)
    process = getattr(kernel, "process_checkpoint", None)
    if process is None or is_weights_pre_processed() or foreign(original, "vllm"):
        original(method, layer)
        return

    def theirs(its_kernel: Any, its_layer: Any) -> None:
        its_method = copy(method)
        setattr(its_method, kernel_name, its_kernel)
        original(its_method, its_layer)

    def ours(its_kernel: Any, its_layer: Any) -> None:
        its_kernel.process_checkpoint(its_layer)

    if theirs_for(kernel, layer, ours, theirs) is None:
        process(layer)
    else:
        original(method, layer)


def _create(kernel_name: str, original: Any, method: Any, *args: Any, **kwargs: Any) -> None:
    """Tells HK's kernels what is missing from the configuration that vLLM passes them."""
    layer = kwargs["layer"] if "layer" in kwargs else args[0]
    rotation = getattr(method, "hk_rotation", 0)
    alone = getattr(method, "hk_weight_only", False)
    with creating(layer), no_other(name_of(layer), rotation), weights_alone(alone):
        verdict = verdict_on_created() and blocks_verdict()
        original(method, *args, **kwargs)
    kernel = getattr(method, kernel_name, None)
    if isinstance(kernel, HKMxKernel):
        kernel.weight_only = kernel.weight_only or alone
        kernel.weight_name = "weight_packed" if hasattr(layer, "weight_packed") else "weight"
        kernel.rotation = rotation
    if rotation:
        if not (exact := latent_verdict(layer, rotation)):
            raise only_hk(name_of(layer), rotation, exact.why)
        with weights_alone(alone):
            check_served(name_of(layer), rotation, kernel, kwargs)
    if not isinstance(kernel, HKKernel):
        if not verdict:
            layer.hk_left = verdict.why
        return
    expose_input_quant_key(layer, kernel)  # not all of vLLM's methods do
    mark_unset(layer)


def _keep_parts(
    original: Any, config: Any, weight_quant: Any, input_quant: Any, *args: Any, **kwargs: Any
) -> Any:
    """Keeps facts of a compressed-tensors scheme that vLLM does not pass to its kernels.

    No mx kernel learns from vLLM that a checkpoint leaves activations unquantised, or has rotated
    weights. It also stops at such a checkpoint with FP8 blocks, as it expects False where its own
    value is None.
    """
    rotation, layer_name = rotation_of(weight_quant), kwargs.get("layer_name") or "a layer"
    with no_other(layer_name, rotation), weights_alone(input_quant is None):
        scheme = original(config, weight_quant, input_quant, *args, **kwargs)
    if rotation:
        if type(scheme) not in MX_METHODS:
            raise only_hk(layer_name, rotation, no_kernel(scheme))
        scheme.hk_rotation = rotation
    if input_quant is None:
        if type(scheme) in MX_METHODS:
            scheme.hk_weight_only = True
        elif isinstance(scheme, CompressedTensorsW8A16Fp8):
            scheme.is_static_input_scheme = False
    return scheme
