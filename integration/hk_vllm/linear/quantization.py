"""`--quantization hk_fp8`, `hk_mxfp8`, `hk_mxfp6` and `hk_mxfp4`.

See hk_backend.engine.linear.methods. Options for an unquantised checkpoint, say weight-only:

    --quantization hk_fp8 --hf-overrides '{
      "quantization_config_dict_json": "{\\"activations\\": \\"none\\"}"}'
"""

from __future__ import annotations

import json
from typing import Any

import torch
from vllm.config import get_current_vllm_config_or_none
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.fused_moe import RoutedExperts, UnquantizedFusedMoEMethod
from vllm.model_executor.layers.fusion.quant_activation import expose_input_quant_key
from vllm.model_executor.layers.linear import (
    LinearBase,
    LinearMethodBase,
    UnquantizedLinearMethod,
    register_weight_loader_v2_supported_method,
)
from vllm.model_executor.layers.quantization import (
    QUANTIZATION_METHODS,
    get_quantization_config,
    register_quantization_config,
)
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    kFp8Dynamic128Sym,
    kFp8DynamicTensorSym,
    kFp8DynamicTokenSym,
)
from vllm.model_executor.model_loader.reload.layerwise import (
    get_layerwise_info,
    initialize_online_processing,
)
from vllm.model_executor.parameter import (
    ChannelQuantScaleParameter,
    GroupQuantScaleParameter,
    ModelWeightParameter,
)
from vllm.platforms import current_platform

from hk_backend.engine import loggers
from hk_backend.engine.linear.checkpoint_tensors import mark_unset
from hk_backend.engine.linear.methods import LinearMethod, MethodConfig, config_classes, free_names
from hk_backend.engine.linear.online import check_arrived, pack_online, shard_indices
from hk_backend.engine.linear.options import Options, is_ignored, known_options, no_experts
from hk_backend.engine.linear.packed_layer import is_released, pack_layer, release
from hk_backend.terms.verdict import Verdict
from hk_backend.terms.weight_format import FORMATS, MX_BLOCK, rotated_activations
from hk_vllm.linear.codes import announced, multiply
from hk_vllm.linear.created import latent_verdict
from hk_vllm.linear.layer import device_type, verdict_on

logger = loggers.of("vllm", "linear")


def install() -> None:
    """Registers the methods with vLLM; harmless to call again."""

    def registered(name: str) -> Any:
        return get_quantization_config(name) if name in QUANTIZATION_METHODS else None

    for name in free_names(CONFIGS, registered, logger):
        register_quantization_config(name)(CONFIGS[name])


class HKConfig(MethodConfig, QuantizationConfig):  # type: ignore[misc]
    """One of the methods above, with its options."""

    @staticmethod
    def fp8_dtype() -> torch.dtype:
        dtype: torch.dtype = current_platform.fp8_dtype()
        return dtype

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> HKConfig:
        return cls(**known_options(cls.hk_method, config), serialized=True)

    @classmethod
    def from_config_dict_json(cls, config_dict_json: str) -> HKConfig:
        """Reads the options for an unquantised checkpoint, from `--hf-overrides`."""
        return cls(**known_options(cls.hk_method, json.loads(config_dict_json)))

    def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None:
        self.options.ignore = hf_to_vllm_mapper.apply_list(self.options.ignore)

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        if isinstance(layer, Attention):
            return BaseKVCacheMethod(self)
        experts = isinstance(layer, RoutedExperts)
        if not experts and not isinstance(layer, LinearBase):
            return None
        if is_ignored(prefix, self.options.ignore, self.packed_modules_mapping):
            if not experts:
                return UnquantizedLinearMethod()
            return UnquantizedFusedMoEMethod(layer.moe_config)
        if experts:
            raise no_experts(self.hk_method, prefix)
        method = HKLinearMethod if self.serialized else HKOnlineLinearMethod
        return method(self.hk_method, self.options)


CONFIGS = config_classes(HKConfig, __name__)
"""Configuration classes by the method's name."""
globals().update({config.__name__: config for config in CONFIGS.values()})

KEYS = {
    "token": kFp8DynamicTokenSym,
    "tensor": kFp8DynamicTensorSym,
    "token_block": kFp8Dynamic128Sym,
}
"""vLLM's keys for the rounding of activations to FP8."""


class HKMethod(LinearMethod, LinearMethodBase):  # type: ignore[misc]
    """The base of both methods."""

    verdict_on, device_type = staticmethod(verdict_on), staticmethod(device_type)

    def __init__(self, name: str, options: Options) -> None:
        super().__init__(name, options)
        key = KEYS.get(options.activations)
        self.key = key if key and key.dtype == FORMATS[options.format].dtype else None
        self.quantiser = None
        if self.key is not None:
            self.quantiser = QuantFP8(static=False, group_shape=self.key.scale.group_shape)

    def input_quant_key(self) -> Any:
        return announced(self.key)

    def apply(self, layer: Any, x: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
        return multiply(layer, x, bias, None, self.key, self.quantiser)

    def reads(self, layer: Any, rotation: int) -> Verdict:
        return latent_verdict(layer, rotation)


@register_weight_loader_v2_supported_method
class HKLinearMethod(HKMethod):
    """The method for a checkpoint that holds `weight` and `weight_scale`."""

    def register(self, layer: Any, n: int, k: int, dtype: torch.dtype, loader: Any) -> None:
        format = FORMATS[self.options.format]
        codes = torch.empty(n, format.row_codes(k), dtype=format.dtype)
        weight = ModelWeightParameter(data=codes, input_dim=1, output_dim=0, weight_loader=loader)
        layer.register_parameter("weight", weight)
        if format.is_mx:
            blocks = torch.empty(n, k // MX_BLOCK, dtype=torch.uint8)
            scale = GroupQuantScaleParameter(
                data=blocks, input_dim=1, output_dim=0, weight_loader=loader
            )
        else:
            rows = torch.empty(n, 1, dtype=torch.float32)
            scale = ChannelQuantScaleParameter(data=rows, output_dim=0, weight_loader=loader)
        layer.register_parameter("weight_scale", scale)
        expose_input_quant_key(layer, self)
        mark_unset(layer)

    def process_weights_after_loading(self, layer: Any) -> None:
        if is_released(layer):
            return
        options, rotation = self.options, self.options.rotation or 0
        pack_layer(
            layer,
            layer.weight.data,
            options.format,
            layer.weight_scale.data,
            activations=rotated_activations(options.activations, rotation),
            rotation=rotation,
        )
        release(layer, "weight_scale")


@register_weight_loader_v2_supported_method
class HKOnlineLinearMethod(HKMethod):
    """The method for an unquantised checkpoint: quantises each layer as soon as it is loaded."""

    uses_meta_device = True

    def register(self, layer: Any, n: int, k: int, dtype: torch.dtype, loader: Any) -> None:
        # on no device until its values arrive; vLLM then calls process_weights_after_loading
        values = torch.empty(n, k, dtype=dtype, device="meta")
        weight = ModelWeightParameter(data=values, input_dim=1, output_dim=0, weight_loader=loader)
        layer.register_parameter("weight", weight)
        expose_input_quant_key(layer, self)
        initialize_online_processing(layer)

    def process_weights_after_loading(self, layer: Any) -> None:
        if getattr(layer, "_already_called_process_weights_after_loading", False):
            return
        check_weight_arrived(layer)
        pack_online(layer, layer.weight.data, self.options)
        release(layer)
        layer._already_called_process_weights_after_loading = True


def check_weight_arrived(layer: Any) -> None:
    """Checks that all shards of a layer's weight have arrived, by vLLM's record of its tensors.

    Raises:
        CheckpointError: a tensor is missing from the checkpoint.
    """
    if _loads_nothing():
        return
    arrived: set[int] = set()
    for parameter, call in get_layerwise_info(layer).loaded_weights:
        if parameter == "weight":
            shards = shard_indices(call.arguments.get("loaded_shard_id"))
            if shards is None:
                return  # all in one tensor
            arrived |= shards
    check_arrived(layer, arrived)


def _loads_nothing() -> bool:
    config = get_current_vllm_config_or_none()
    return config is not None and config.load_config.load_format == "dummy"
