"""`--quantization hk_fp8`, `hk_mxfp8`, `hk_mxfp6` and `hk_mxfp4`.

See hk_backend.engine.linear.methods. Options for an unquantised checkpoint, say weight-only:

    --quantization hk_fp8 --json-model-override-args '{"quantization_config": {
      "quant_method": "hk_fp8", "serialized": false, "activations": "none"}}'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.configs import model_config
from sglang.srt.layers import quantization
from sglang.srt.layers.linear import LinearBase
from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.layers.parameter import ModelWeightParameter
from sglang.srt.layers.quantization.base_config import QuantizationConfig
from sglang.srt.layers.quantization.unquant import (
    UnquantizedFusedMoEMethod,
    UnquantizedLinearMethod,
)
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.server_args import QUANTIZATION_CHOICES, add_quantization_method_choices

from hk_backend.engine import loggers
from hk_backend.engine.linear.methods import LinearMethod, MethodConfig, config_classes, free_names
from hk_backend.engine.linear.online import check_arrived, pack_online
from hk_backend.engine.linear.options import FORMATS_OF, is_ignored, known_options, no_experts
from hk_backend.engine.linear.route import is_attached
from hk_backend.terms.verdict import SERVED, Verdict, refused
from hk_backend.terms.weight_format import FORMATS
from hk_sglang.linear.arrivals import arrived_shards, expect, releasing, whole_tensors
from hk_sglang.linear.layer import READ, device_type, read_by_models, verdict_on
from hk_sglang.linear.methods import HKLinearMethod, HKMethod
from hk_sglang.linear.schemes import Scheme

logger = loggers.of("sglang", "linear")

FROM_SGLANG = ("packed_modules_mapping", "hf_config")
"""Keys that SGLang adds to a checkpoint's configuration (model_loader/weight_utils.py)."""

VERIFY = "sglang.srt.configs.model_config.ModelConfig._verify_quantization"


def install() -> None:
    """Registers the methods with SGLang; harmless to call again."""
    for name in free_names(CONFIGS, quantization.QUANTIZATION_METHODS.get, logger):
        for known in (
            quantization.QUANTIZATION_METHODS,
            quantization.BASE_QUANTIZATION_METHODS,
            quantization.CPU_QUANTIZATION_METHODS,  # on a CPU with AMX nothing else is looked at
        ):
            known[name] = CONFIGS[name]
        if name not in QUANTIZATION_CHOICES:
            add_quantization_method_choices([name])
    # SGLang applies the hook after all plugins
    if all(hook is not verify for _, hook, _ in HookRegistry._hooks.get(VERIFY, ())):
        HookRegistry.register(VERIFY, verify, HookType.AROUND)


class HKConfig(MethodConfig, QuantizationConfig):  # type: ignore[misc]
    """One of the methods above, with its options."""

    @staticmethod
    def fp8_dtype() -> torch.dtype:
        from sglang.kernels.ops.quantization.fp8_kernel import is_fp8_fnuz

        return torch.float8_e4m3fnuz if is_fp8_fnuz() else torch.float8_e4m3fn

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> HKConfig:
        own = {name: value for name, value in config.items() if name not in FROM_SGLANG}
        serialized = own.pop("serialized", True)
        if not isinstance(serialized, bool):
            raise ValueError(
                f"{cls.hk_method}: serialized {serialized!r} is not valid: expected true or false"
            )
        read = cls(**known_options(cls.hk_method, own), serialized=serialized)
        read.packed_modules_mapping = config.get("packed_modules_mapping") or {}
        return read

    def get_scaled_act_names(self) -> list[str]:
        return []

    def apply_weight_name_mapper(self, hf_to_sglang_mapper: Any) -> None:
        self.options.ignore = hf_to_sglang_mapper.apply_list(self.options.ignore)

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        experts = isinstance(layer, FusedMoE)
        if not experts and not isinstance(layer, LinearBase):
            return None
        if is_ignored(prefix, self.options.ignore, self.packed_modules_mapping):
            if not experts:
                return UnquantizedLinearMethod()
            return UnquantizedFusedMoEMethod(
                layer.use_triton_kernels, layer.use_flashinfer_trtllm_moe
            )
        if experts:
            raise no_experts(self.hk_method, prefix)
        if not self.serialized:
            return HKOnlineLinearMethod(self.hk_method, self.options)
        options = self.options
        kind = "mx" if FORMATS[options.format].is_mx else "channel"
        scheme = Scheme(options.format, kind, options.activations)
        if options.rotation:
            scheme = scheme.rotated(options.rotation)
        return HKLinearMethod(scheme, name=self.hk_method)


CONFIGS = config_classes(HKConfig, __name__)
"""Configuration classes by the method's name."""
globals().update({config.__name__: config for config in CONFIGS.values()})


class HKOnlineLinearMethod(LinearMethod, HKMethod):
    """The method for an unquantised checkpoint: quantises each layer as soon as it is loaded."""

    verdict_on, device_type = staticmethod(verdict_on), staticmethod(device_type)

    def reads(self, layer: Any, rotation: int) -> Verdict:
        return refused(READ) if read_by_models(layer) else SERVED

    def register(self, layer: Any, n: int, k: int, dtype: torch.dtype, loader: Any) -> None:
        weight = ModelWeightParameter(
            data=torch.empty(0, dtype=dtype),
            input_dim=1,
            output_dim=0,
            weight_loader=whole_tensors(layer, loader),
        )
        layer.register_parameter("weight", weight)
        expect(layer, "weight", torch.Size((n, k)), self.process_weights_after_loading)

    def process_weights_after_loading(self, layer: Any) -> None:
        weight = layer.weight
        if weight.numel() == 0 and is_attached(layer):
            return  # quantised when it arrived
        with releasing(layer, "weight", whole=self.process_weights_after_loading):
            check_arrived(layer, arrived_shards(layer))
            pack_online(layer, weight.data, self.options)


def verify(original: Callable[[Any], None], config: Any) -> None:
    """Allows the methods on ROCm, where SGLang lists what is allowed.

    The list is a local variable of `ModelConfig._verify_quantization`, which reads it only
    `if is_hip()`. So `is_hip()` answers no while a model with one of these methods is verified.
    """
    if _method_of(config) not in FORMATS_OF:
        original(config)
        return
    is_hip = model_config.is_hip
    model_config.is_hip = lambda: False
    try:
        original(config)
    finally:
        model_config.is_hip = is_hip


def _method_of(config: Any) -> str:
    """The requested method, or the checkpoint's."""
    if config.quantization:
        return str(config.quantization).lower()
    found = config._parse_quant_hf_config() or {}
    return str(found.get("quant_method", "")).lower()
