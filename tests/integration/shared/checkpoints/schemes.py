"""Every scheme that HK is to serve, as its tool writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from hk_backend.ops.rotation import ROTATION_KEY
from hk_backend.terms.weight_format import rotated_activations
from tests.integration.shared.checkpoints import compressed
from tests.integration.shared.checkpoints.numbers import (
    fp8_block,
    fp8_block_4d,
    fp8_channel,
    fp8_column,
    fp8_tensor,
    mx,
)
from tests.integration.shared.checkpoints.scheme import Layer, Scheme

ANY_DTYPE = ("float32", "float16", "bfloat16")


def fp8(name: str, activation_scheme: str, block: bool = False) -> Scheme:
    """vLLM's own `fp8`, as AutoFP8 and DeepSeek write it."""
    config: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": activation_scheme}
    if block:
        config["weight_block_size"] = [128, 128]
        return Scheme(name, fp8_block, config, "token_block")
    config["ignored_layers"] = ["lm_head"]
    return Scheme(name, fp8_tensor, config, "tensor", static=activation_scheme == "static")


def compressed_tensors(name: str, preset: str, activations: str, **changed: Any) -> Scheme:
    """A compressed-tensors scheme: the library's `preset`, its weights or activations `changed`."""
    scheme = compressed.preset(preset, **changed)
    args = scheme.input_activations
    return Scheme(
        name,
        partial(compressed.layer, scheme),
        compressed.config(scheme),
        activations,
        preset.lower() if preset.startswith("MX") else "fp8_e4m3fn",
        static=args is not None and not args.dynamic,
        dtypes=ANY_DTYPE,
    )


def rotated(scheme: Scheme, block: int) -> Scheme:
    """A compressed-tensors scheme of weights that are rotated first, as HK's own tool does it.

    An entry's sign in the rotation's matrix is the parity of the bits that row and column share.
    """
    scheme.config["config_groups"]["group_0"]["weights"][ROTATION_KEY] = block

    def turn(weight: torch.Tensor) -> torch.Tensor:
        index = torch.arange(block)
        shared = (index[:, None] & index)[..., None] >> torch.arange(8) & 1
        matrix = (1 - 2 * (shared.sum(-1) % 2)).double() * block**-0.5
        return (weight.double().unflatten(1, (-1, block)) @ matrix).flatten(1).float()

    return after(scheme, turn, block)


def after(
    scheme: Scheme,
    turn: Callable[[torch.Tensor], torch.Tensor],
    block: int,
    matrices: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> Scheme:
    """The scheme of weights that `turn` rotates first, with more tensors for each."""

    def layer(weight: torch.Tensor) -> Layer:
        plain = scheme.layer(turn(weight))
        copies = {name: each.clone() for name, each in matrices.items()}
        return replace(plain, tensors=plain.tensors | copies)

    return replace(
        scheme,
        layer=layer,
        rotation=block,
        activations=rotated_activations(scheme.activations, block),
    )


def transformed(scheme: Scheme, block: int) -> Scheme:
    """A compressed-tensors scheme of weights that the library itself rotates, like llm-compressor.

    Its configuration has a `transform_config`, and its file each layer's matrix.
    """
    transforms = compressed.transforms(head_dim=block)
    config = scheme.config | {"transform_config": transforms}
    turn = partial(compressed.turned, transforms)
    return after(replace(scheme, config=config), turn, block, compressed.matrices(transforms))


def auto_round(bits: int, block: int) -> Scheme:
    """auto-round's export of MX weights, each of which it has rotated."""
    inputs = {"bits": bits, "data_type": "mx_fp", "group_size": 32, "sym": True}
    config = {"quant_method": "auto-round", "packing_format": "auto_round:llm_compressor", **inputs}
    config |= {f"act_{name}": value for name, value in inputs.items()} | {"act_dynamic": True}
    config["rotation_config"] = {
        "algorithm": "hadamard",
        "backend": "auto",
        "block_size": block,
        "hadamard_type": "hadamard",
        "layerwise": False,
        "fuse_online_to_weight": None,
        "allow_online_rotation": True,
    }
    plain = compressed_tensors(f"ar-mxfp{bits}-rotated", f"MXFP{bits}", "mx")
    plain = replace(plain, config=config, dtypes=("float16", "bfloat16"))
    return after(plain, partial(compressed.turned, compressed.transforms(head_dim=block)), block)


def quark(
    name: str, layer: Any, weight: dict[str, Any], inputs: dict[str, Any] | None, **more: Any
) -> Scheme:
    """AMD Quark's export: `weight` and `inputs` are its descriptions of a tensor."""
    config = {
        "quant_method": "quark",
        "global_quant_config": {
            "weight": weight | {"is_dynamic": False},
            "input_tensors": inputs,
            "output_tensors": None,
            "bias": None,
        },
        "layer_quant_config": {},
        "layer_type_quant_config": {},
        "exclude": ["lm_head"],
        "export": {
            "kv_cache_group": [],
            "min_kv_scale": 0.0,
            "pack_method": "reorder",
            "weight_format": "real_quantized",
            "weight_merge_groups": None,
        },
    }
    return Scheme(name, layer, config, **more)


def quark_fp8(name: str, weights: str, inputs: str, dynamic: bool) -> Scheme:
    tensor = {"dtype": "fp8_e4m3", "symmetric": True}
    return quark(
        name,
        fp8_tensor if weights == "per_tensor" else fp8_channel,
        tensor | {"qscheme": weights, "ch_axis": 0 if weights == "per_channel" else None},
        tensor | {"qscheme": inputs, "is_dynamic": dynamic},
        activations="tensor" if inputs == "per_tensor" else "token",
        static=not dynamic,
    )


def quark_mx(format: str, activations: str = "mx") -> Scheme:
    def tensor(format: str) -> dict[str, Any]:
        return {
            "dtype": "fp8_e4m3" if format == "mxfp8" else format.replace("mxfp", "fp"),
            "qscheme": "per_group",
            "group_size": 32,
            "ch_axis": -1,
            "scale_format": "e8m0",
            "symmetric": None,
        }

    ending = {"mx": "", "none": "-weight-only"}.get(activations, f"-{activations}")
    of_inputs = format if activations == "mx" else activations
    return quark(
        f"quark-{format}{ending}",
        partial(mx, format=format),
        tensor(format),
        None if activations == "none" else tensor(of_inputs) | {"is_dynamic": True},
        activations=activations,
        format=format,
    )


def modelopt(name: str, algorithm: str, layer: Any, activations: str, **more: Any) -> Scheme:
    """NVIDIA ModelOpt's scheme, by its `config.json`."""
    config = {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"]}
    return Scheme(name, layer, config, activations, **more)


def hk(format: str, activations: str, name: str = "", **options: Any) -> Scheme:
    """A scheme that this project's online methods read back, in the layouts of `pack_weight`."""
    family = format.split("_", maxsplit=1)[0]
    config = {"quant_method": f"hk_{family}", "format": format, "ignore": ["lm_head"]}
    config |= {"activations": activations} | options
    layer = fp8_column if family == "fp8" else partial(mx, format=format)
    name = name or f"hk-{format}"
    return Scheme(name, layer, config, activations, format, dtypes=ANY_DTYPE)


def turned(scheme: Scheme) -> Scheme:
    """HK's own scheme with the rotation that its config asks for."""
    rotation = scheme.config["rotation"]
    activations = rotated_activations(scheme.activations, rotation)
    return replace(scheme, activations=activations, rotation=rotation)


def named(*schemes: Scheme) -> dict[str, Scheme]:
    return {scheme.name: scheme for scheme in schemes}


WITHOUT_INPUTS = {"input_activations": None}
DYNAMIC = {"input_activations": compressed.preset("FP8_DYNAMIC").input_activations.model_dump()}
MXFP8 = partial(mx, format="mxfp8")

SCHEMES = named(
    fp8("fp8-static", "static"),
    fp8("fp8-dynamic", "dynamic"),
    fp8("fp8-block", "dynamic", block=True),
    compressed_tensors("ct-tensor-static", "FP8", "tensor"),
    compressed_tensors("ct-tensor-dynamic", "FP8", "token", **DYNAMIC),
    compressed_tensors("ct-channel-token", "FP8_DYNAMIC", "token"),
    compressed_tensors("ct-block", "FP8_BLOCK", "token_block"),
    compressed_tensors("ct-channel-weight-only", "FP8_DYNAMIC", "none", **WITHOUT_INPUTS),
    compressed_tensors("ct-mxfp8", "MXFP8", "mx"),
    compressed_tensors("ct-mxfp4", "MXFP4", "mx"),
    compressed_tensors("ct-mxfp4-weight-only", "MXFP4", "none", **WITHOUT_INPUTS),
    rotated(compressed_tensors("ct-mxfp4-rotated", "MXFP4", "mx"), 64),
    rotated(
        compressed_tensors("ct-mxfp4-rotated-weight-only", "MXFP4", "none", **WITHOUT_INPUTS), 128
    ),
    transformed(compressed_tensors("ct-mxfp4-transform", "MXFP4", "mx"), 64),
    quark_fp8("quark-tensor-static", "per_tensor", "per_tensor", dynamic=False),
    quark_fp8("quark-channel-token", "per_channel", "per_channel", dynamic=True),
    quark_mx("mxfp8"),
    quark_mx("mxfp6_e2m3"),
    quark_mx("mxfp6_e3m2", "none"),
    quark_mx("mxfp4"),
    quark_mx("mxfp4", "mxfp6_e2m3"),
    modelopt("modelopt-fp8", "FP8", fp8_tensor, "tensor", static=True),
    modelopt("modelopt-channel-token", "FP8_PER_CHANNEL_PER_TOKEN", fp8_channel, "token"),
    modelopt("modelopt-block", "FP8_PB_WO", fp8_block_4d, "token_block"),
    modelopt("modelopt-mxfp8", "MXFP8", MXFP8, "mx", format="mxfp8", dtypes=("bfloat16",)),
    hk("fp8_e4m3fn", "token"),
    hk("mxfp6_e2m3", "mx"),
    hk("mxfp4", "none"),
)
"""Schemes for whole models."""
LAYERS = SCHEMES | named(
    compressed_tensors("ct-tensor-weight-only", "FP8", "none", **WITHOUT_INPUTS),
    compressed_tensors("ct-block-weight-only", "FP8_BLOCK", "none", **WITHOUT_INPUTS),
    compressed_tensors("ct-mxfp8-weight-only", "MXFP8", "none", **WITHOUT_INPUTS),
    rotated(compressed_tensors("ct-mxfp8-rotated", "MXFP8", "mx"), 32),
    transformed(
        compressed_tensors("ct-mxfp8-transform-weight-only", "MXFP8", "none", **WITHOUT_INPUTS), 128
    ),
    auto_round(4, 32),
    auto_round(8, 64),
    quark_mx("mxfp4", "none"),
    quark_mx("mxfp4", "mxfp6_e3m2"),
    quark_mx("mxfp4", "mxfp8"),
    quark_mx("mxfp6_e3m2"),
    hk("fp8_e4m3fn", "none", "hk-fp8_e4m3fn-weight-only"),
    hk("mxfp8", "mx"),
    hk("mxfp6_e3m2", "mx"),
    hk("mxfp4", "mx", "hk-mxfp4-mx"),
    hk("mxfp4", "mxfp6_e2m3", "hk-mxfp4-mxfp6_e2m3"),
    turned(hk("mxfp4", "mx", "hk-mxfp4-rotated", rotation=32)),
    turned(hk("mxfp4", "mxfp6_e2m3", "hk-mxfp4-mxfp6_e2m3-rotated", rotation=64)),
)
"""Schemes for single layers: those of whole models, and more."""
