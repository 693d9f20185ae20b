"""Configurations of quantised checkpoints, as vLLM reads them from config.json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def fp8(activation_scheme: str, **extra: Any) -> Callable[[], Any]:
    def make() -> Any:
        from vllm.model_executor.layers.quantization.fp8 import Fp8Config

        config = {"quant_method": "fp8", "activation_scheme": activation_scheme, **extra}
        return Fp8Config.from_config(config)

    return make


def compressed_tensors(
    weights: dict[str, Any], inputs: dict[str, Any] | None, format: str
) -> Callable[[], Any]:
    def make() -> Any:
        from vllm.model_executor.layers.quantization.compressed_tensors import compressed_tensors

        eight = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
        group: dict[str, Any] = {"targets": ["Linear"], "weights": {**eight, **weights}}
        group["input_activations"] = None if inputs is None else {**eight, **inputs}
        config = {"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"]}
        return compressed_tensors.CompressedTensorsConfig.from_config(
            {**config, "config_groups": {"group_0": group}}
        )

    return make


def quark(weights: dict[str, Any], inputs: dict[str, Any] | None) -> Callable[[], Any]:
    def make() -> Any:
        from vllm.model_executor.layers.quantization.quark.quark import QuarkConfig

        everywhere = {"weight": weights, "input_tensors": inputs}
        everywhere |= {"output_tensors": None, "bias": None}
        return QuarkConfig.from_config(
            {
                "quant_method": "quark",
                "export": {"kv_cache_group": [], "pack_method": "reorder"},
                "global_quant_config": everywhere,
                "layer_quant_config": {},
                "layer_type_quant_config": {},
                "exclude": [],
            }
        )

    return make


def quark_fp8(qscheme: str, dynamic: bool) -> dict[str, Any]:
    return {
        "dtype": "fp8_e4m3",
        "qscheme": qscheme,
        "is_dynamic": dynamic,
        "symmetric": True,
        "ch_axis": None if qscheme == "per_tensor" else 0,
    }


def quark_mx(dtype: str, dynamic: bool) -> dict[str, Any]:
    return {
        "dtype": dtype,
        "qscheme": "per_group",
        "group_size": 32,
        "is_dynamic": dynamic,
        "scale_format": "e8m0",
        "symmetric": None,
        "ch_axis": -1,
    }


def modelopt(algorithm: str) -> Callable[[], Any]:
    def make() -> Any:
        from vllm.model_executor.layers.quantization import modelopt

        owner = modelopt.ModelOptMxFp8Config if algorithm == "MXFP8" else modelopt.ModelOptFp8Config
        return owner.from_config({"quant_method": "modelopt", "quant_algo": algorithm})

    return make


def hk(name: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        from vllm.model_executor.layers.quantization import get_quantization_config

        return get_quantization_config(name).from_config({"quant_method": name, **options})

    return make
