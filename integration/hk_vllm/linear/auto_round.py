"""auto-round's checkpoints with rotated weights, which vLLM reads past their rotation.

See hk_backend.engine.linear.auto_round. checkpoints.py passes the rotation on to HK's kernel.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.inc.inc import INCConfig

from hk_backend.engine.linear.auto_round import rotation_in
from hk_backend.engine.linear.packed_layer import EXPERTS, no_kernel
from hk_backend.engine.linear.rotated import no_other, only_hk
from hk_backend.engine.patching import wrap
from hk_vllm.linear.checkpoints import MX_METHODS


def install() -> None:
    """Changes vLLM's configuration; harmless to call again."""
    wrap(INCConfig, "from_config", _read, static=True)
    wrap(INCConfig, "get_quant_method", _method_of)


def _read(original: Any, config: dict[str, Any]) -> Any:
    rotation = rotation_in(config)
    found = original(config)
    found.hk_rotation = rotation
    return found


def _method_of(original: Any, config: Any, layer: Any, prefix: str) -> Any:
    """vLLM's method of a layer, with the rotation if the layer is quantised.

    Raises:
        RotationError: the layer is rotated, and HK does not serve it.
    """
    rotation = getattr(config, "hk_rotation", 0)
    experts = isinstance(layer, RoutedExperts)
    if rotation and experts and config.config_parser.resolve(layer, prefix).quantized:
        raise only_hk(prefix, rotation, EXPERTS)
    if not rotation or not isinstance(layer, LinearBase):
        return original(config, layer, prefix)  # an LM head is never rotated
    with no_other(prefix, rotation):
        method = original(config, layer, prefix)
    if isinstance(method, UnquantizedLinearMethod):
        return method
    scheme = getattr(method, "scheme", method)
    if type(scheme) not in MX_METHODS:
        raise only_hk(prefix, rotation, no_kernel(scheme))
    scheme.hk_rotation = rotation
    return method
