"""What config.json says of quantised checkpoints: its `quantization_config`, tool by tool."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def fp8(activation_scheme: str, **extra: Any) -> Config:
    return {"quant_method": "fp8", "activation_scheme": activation_scheme, **extra}


def compressed_tensors(weights: Config, inputs: Config | None, format: str) -> Config:
    eight = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
    group: Config = {"targets": ["Linear"], "weights": {**eight, **weights}}
    group["input_activations"] = None if inputs is None else {**eight, **inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


def quark(weights: Config, inputs: Config | None) -> Config:
    everywhere = {"weight": weights, "input_tensors": inputs}
    return {
        "quant_method": "quark",
        "export": {"kv_cache_group": [], "pack_method": "reorder"},
        "global_quant_config": everywhere | {"output_tensors": None, "bias": None},
        "layer_quant_config": {},
        "layer_type_quant_config": {},
        "exclude": [],
    }


def quark_fp8(qscheme: str, dynamic: bool) -> Config:
    return {
        "dtype": "fp8_e4m3",
        "qscheme": qscheme,
        "is_dynamic": dynamic,
        "symmetric": True,
        "ch_axis": None if qscheme == "per_tensor" else 0,
    }


def quark_mx(dtype: str, dynamic: bool) -> Config:
    return {
        "dtype": dtype,
        "qscheme": "per_group",
        "group_size": 32,
        "is_dynamic": dynamic,
        "scale_format": "e8m0",
        "symmetric": None,
        "ch_axis": -1,
    }


def modelopt(algorithm: str) -> Config:
    return {"quant_method": "modelopt", "quant_algo": algorithm}


def hk(name: str, **options: Any) -> Config:
    return {"quant_method": name, **options}
