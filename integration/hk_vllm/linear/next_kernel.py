"""The kernel that vLLM would run without HK, for layers on which it was measured to be faster.

HK's kernel is chosen when a layer is created, without its tensors. Once they are there, HK is timed
beside the next kernel of vLLM's list, on copies of the layer. If that one is faster, HK's kernel
hands the layer over to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.model_executor.kernels import linear as lists
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
    FP8ScaledMMLinearKernel,
)
from vllm.model_executor.layers.fusion.quant_activation import expose_input_quant_key
from vllm.model_executor.utils import is_weights_pre_processed
from vllm.platforms import current_platform

from hk_backend.engine.evidence import NoContest
from hk_backend.engine.linear.checkpoint_tensors import check_weight, checked_scales
from hk_backend.engine.linear.contest import Multiply, activations, with_own_tensors
from hk_backend.engine.linear.route import is_attached
from hk_backend.engine.linear.shards import CheckpointError, Shards
from hk_backend.ops import LinearRequest
from hk_vllm.linear.layer import CONTESTS

NAMES = ["weight", "weight_scale", "input_scale", "input_scale_ub"]
"""Names of a layer's tensors, as vLLM passes them to its FP8 kernels (`init_fp8_linear_kernel`)."""
Prepare = Callable[[Any, Any], None]
"""Prepares a layer for a kernel; takes the kernel and the layer."""


def theirs_for(kernel: Any, layer: Any, ours: Prepare, theirs: Prepare) -> Any:
    """vLLM's own kernel that computes `layer` instead of HK's `kernel`; None if HK computes it.

    The answer is found once: a layer that gets new weights keeps it.

    Args:
        layer: holds the tensors to prepare.
        ours: prepares a copy of the layer for HK's kernel.
        theirs: prepares a copy of the layer for vLLM's kernel.

    Raises:
        CheckpointError: vLLM's kernel is faster, and a tensor is not in the checkpoint.
    """
    known = layer.__dict__.get("hk_theirs")
    # nothing else computes rotated weights
    if known is not None or is_attached(layer) or is_weights_pre_processed() or kernel.rotation:
        return known
    following, request = next_class(kernel), kernel.request(layer)

    def sides() -> tuple[Any, Multiply]:
        if following is None:
            raise NoContest("it has no kernel for such a layer")
        mine = with_own_tensors(layer)
        try:
            ours(kernel, mine)
        except CheckpointError as error:
            raise NoContest(str(error)) from error  # HK packs the layer next, and raises it again
        return mine, product_by(following, kernel.config, theirs, with_own_tensors(layer), request)

    name = "no kernel" if following is None else following.__name__
    layer.hk_left = CONTESTS.why_slower(layer, name, request, sides)
    if layer.hk_left == "":
        return None
    check_loaded(layer, request.n, kernel.weight_name)
    its = layer.hk_theirs = made(following, kernel.config)
    layer.__dict__.pop("_input_quant_key", None)  # HK's key, set when the layer was created
    expose_input_quant_key(layer, its)
    return its


def next_class(kernel: Any) -> Any:
    """vLLM's choice for the layer of HK's `kernel` if HK were not in its list; None: nothing."""
    for each in getattr(lists, kernel.listed_in).get(current_platform._enum, []):
        if each is type(kernel):
            continue
        if lists.is_supported_and_can_implement_kernel(each, kernel.config, None)[0]:
            return each
    return None


def product_by(
    following: Any, config: Any, prepare: Prepare, layer: Any, request: LinearRequest
) -> Multiply:
    """vLLM's own product, tried once, as some kernels claim to support a CPU and do not.

    Raises:
        NoContest: vLLM's kernel fails.
    """

    def multiply(x: torch.Tensor) -> object:
        return kernel.apply_weights(layer, x)

    try:
        kernel = made(following, config)
        prepare(kernel, layer)
        multiply(activations(1, request))
    except Exception as error:  # whatever a kernel or its preparation raises
        raise NoContest(f"{following.__name__}: {type(error).__name__}: {error}") from error
    return multiply


def made(kernel: Any, config: Any) -> Any:
    """An instance of a class of vLLM's lists, as vLLM makes it."""
    if issubclass(kernel, FP8ScaledMMLinearKernel):
        return kernel(config, layer_param_names=NAMES)
    return kernel(config)


def check_loaded(layer: Any, n: int, weight_name: str) -> None:
    """Checks that the checkpoint has filled all tensors that HK marked.

    vLLM would compute with the marks.

    Raises:
        CheckpointError: a tensor was not loaded.
    """
    weight = layer.weight.data
    if len(weight) != n:
        return  # vLLM quantised and transposed it while loading
    shards = Shards.of(layer, n)
    check_weight(shards, weight, weight_name)
    for name in ("weight_scale", "weight_scale_inv"):
        scales = layer._parameters.get(name)
        if scales is not None:
            checked_scales(shards, weight, scales.data, name)
