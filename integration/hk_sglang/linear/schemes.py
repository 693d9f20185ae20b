"""Reads a quantised layer's formats and scales from SGLang's configurations, in HK's names.

SGLang chooses a layer's kernel when it creates the layer, by what the GPU can do. Its own methods
change a checkpoint's numbers to suit that kernel: merged shards are requantised to one scale. So HK
reads the configurations themselves, before that. HK's own method then handles the checkpoint's
layer (checkpoints.py), on a CPU as on ROCm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sglang.srt.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
)
from sglang.srt.layers.quantization.compressed_tensors.utils import (
    find_matched_target,
    should_ignore_layer,
)
from sglang.srt.layers.quantization.fp8 import Fp8Config
from sglang.srt.layers.quantization.modelopt_quant import (
    ModelOptFp8Config,
    ModelOptMixedPrecisionConfig,
)
from sglang.srt.layers.quantization.quark.quark import QuarkConfig
from sglang.srt.layers.quantization.quark.utils import should_ignore_layer as quark_ignores
from sglang.srt.layers.quantization.utils import is_layer_skipped
from sglang.srt.layers.quantization.w8a8_fp8 import W8A8Fp8Config

from hk_backend.engine.linear.packed_layer import no_kernel
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK, MX_BLOCK, rotated_activations

FP8 = "fp8_e4m3fn"
BLOCK = [FP8_BLOCK, FP8_BLOCK]


@dataclass(frozen=True)
class Scheme:
    """The tensors of a layer in a checkpoint, and the quantisation of its activations.

    Args:
        format, activations: names of `pack_weight`.
        scale_kind: a name of `LinearRequest`.
        static: whether the layer has `input_scale`.
        weight: the weight's name.
        scales: the scale's name, and other names that some models use.
        column: whether scales of channels are `[N, 1]`, not `[N]`.
        rotation: channels of the input that are rotated together; 0: none.
    """

    format: str
    scale_kind: str
    activations: str
    static: bool = False
    weight: str = "weight"
    scales: tuple[str, ...] = ("weight_scale",)
    column: bool = True
    rotation: int = 0

    def rotated(self, rotation: int) -> Scheme:
        """The same scheme for a rotated weight.

        Raises:
            NotServed: HK has no rotation for such a layer.
        """
        if self.scale_kind != "mx":
            raise NotServed(f"HK rotates no activations before a weight in {self.format}")
        activations = rotated_activations(self.activations, rotation)
        return replace(self, activations=activations, rotation=rotation)


class NotServed(Exception):
    """HK leaves a layer to SGLang. The message says why; it is empty for an unquantised layer."""


def scheme_of(config: Any, layer: Any, prefix: str) -> Scheme:
    """Scheme of the linear `layer` called `prefix`, according to `config`.

    Raises:
        NotServed: HK does not serve such a layer.
    """
    for kind, read in READERS.items():
        if isinstance(config, kind):
            return read(config, layer, prefix)
    raise NotServed(no_kernel(config))


# -- SGLang's own


def _fp8(config: Any, layer: Any, prefix: str) -> Scheme:
    if is_layer_skipped(prefix, config.ignored_layers, config.packed_modules_mapping or {}):
        raise NotServed
    if not config.is_checkpoint_fp8_serialized:
        raise NotServed("quantised by SGLang while loading: use hk_fp8 or the like for HK")
    return _fp8_checkpoint(config)


def _fp8_checkpoint(config: Any) -> Scheme:
    block = config.weight_block_size
    if config.use_mxfp8:
        return Scheme("mxfp8", "mx", "mx", scales=("weight_scale", "weight_scale_inv"))
    if block is None:
        return Scheme(FP8, "tensor", "tensor", static=config.activation_scheme == "static")
    if config.scale_fmt == "ue8m0":
        raise NotServed("activations scaled by powers of two (scale_fmt ue8m0)")
    return _block(block, ("weight_scale_inv", "weight_scale"))


def _block(size: list[int] | None, scales: tuple[str, ...]) -> Scheme:
    if list(size or ()) != BLOCK:
        raise NotServed(f"weight scales per {size}")
    return Scheme(FP8, "block", "token_block", scales=scales)


def _w8a8_fp8(config: Any, layer: Any, prefix: str) -> Scheme:
    if not config.is_checkpoint_fp8_serialized:
        raise NotServed("quantised by SGLang while loading: use hk_fp8 or the like for HK")
    return Scheme(FP8, "channel", "token")


# -- ModelOpt


def _modelopt(config: Any, prefix: str) -> None:
    if is_layer_skipped(prefix, config.exclude_modules, config.packed_modules_mapping or {}):
        raise NotServed
    if config.is_layer_excluded(prefix):
        raise NotServed


def _modelopt_fp8(config: Any, layer: Any, prefix: str) -> Scheme:
    _modelopt(config, prefix)
    if not config.is_checkpoint_fp8_serialized:
        raise NotServed("quantised by SGLang while loading: use hk_fp8 or the like for HK")
    return Scheme(FP8, "tensor", "tensor", static=True)


def _modelopt_mixed(config: Any, layer: Any, prefix: str) -> Scheme:
    _modelopt(config, prefix)
    algorithm = config.resolve_quant_algo(prefix)
    if algorithm is None:
        raise NotServed
    if algorithm == "FP8":
        return Scheme(FP8, "tensor", "tensor", static=True)
    if algorithm == "MXFP8":
        return _fp8_checkpoint(config.mxfp8_config)
    if algorithm in ("FP8_PB_WO", "FP8_BLOCK_SCALES"):
        return _fp8_checkpoint(config.fp8_block_config)
    raise NotServed(f"ModelOpt's {algorithm}: HK has no kernel for it")


# -- compressed-tensors


def _compressed_tensors(config: Any, layer: Any, prefix: str) -> Scheme:
    """Reads the groups as stored in the checkpoint.

    SGLang's own parsing drops what its kernels do not use.
    """
    if config.linear_fp8_config is not None:
        return _fp8(config.linear_fp8_config, layer, prefix)
    mapping = config.packed_modules_mapping
    if not config.target_scheme_map or should_ignore_layer(prefix, config.ignore, mapping):
        raise NotServed
    if config.sparsity_scheme_map:
        raise NotServed("sparse weights")
    target = find_matched_target(prefix, layer, config.target_scheme_map.keys(), mapping)
    groups = (config.config or {}).get("config_groups", {}).values()
    group = next(each for each in groups if target in each["targets"])
    weights, inputs = group["weights"], group.get("input_activations")
    bits, strategy = weights["num_bits"], weights["strategy"]
    if weights["type"] != "float" or not weights.get("symmetric", True) or weights.get("dynamic"):
        raise NotServed(f"compressed-tensors weights of {bits}-bit {weights['type']}")
    if strategy == "group" and weights.get("group_size") == MX_BLOCK and bits in (4, 8):
        return _compressed_mx(bits, inputs)
    if bits != 8 or strategy not in ("tensor", "channel", "block"):
        raise NotServed(f"compressed-tensors weights of {bits}-bit float, scales per {strategy}")
    if strategy == "block" and list(weights.get("block_structure") or ()) != BLOCK:
        raise NotServed(f"weight scales per {weights.get('block_structure')}")
    activations = _compressed_activations(inputs, strategy)
    return Scheme(FP8, strategy, activations, static=bool(inputs and not inputs.get("dynamic")))


def _compressed_activations(inputs: dict[str, Any] | None, weights: str) -> str:
    if not inputs:
        return "none"
    strategy, dynamic = inputs.get("strategy"), inputs.get("dynamic")
    known = {"tensor": "tensor", "token": "token", "group": "token_block"}
    found = known.get(str(strategy), "")
    blocks = weights == "block"
    if (
        inputs.get("num_bits") != 8
        or inputs.get("type") != "float"
        or not found
        or blocks != (found == "token_block")
        or (blocks and (inputs.get("group_size") != FP8_BLOCK or not dynamic))
    ):
        raise NotServed(f"activations of {inputs.get('num_bits')} bits quantised per {strategy}")
    return found


def _compressed_mx(bits: int, inputs: dict[str, Any] | None) -> Scheme:
    alike = ("num_bits", bits), ("type", "float"), ("strategy", "group"), ("group_size", MX_BLOCK)
    if inputs and not (inputs.get("dynamic") and all(inputs.get(k) == v for k, v in alike)):
        raise NotServed("activations in another format than the weight's")
    activations = "mx" if inputs else "none"
    if bits == 4:
        return Scheme("mxfp4", "mx", activations, weight="weight_packed")
    return Scheme("mxfp8", "mx", activations)


# -- Quark

QUARK_MX = {"fp4": "mxfp4", "fp6_e2m3": "mxfp6_e2m3", "fp6_e3m2": "mxfp6_e3m2", "fp8_e4m3": "mxfp8"}


def _quark(config: Any, layer: Any, prefix: str) -> Scheme:
    if quark_ignores(prefix, config.exclude_layers, config.packed_modules_mapping):
        if config.excluded_fp8_config is None:
            raise NotServed
        return _fp8_checkpoint(config.excluded_fp8_config)
    if not config.is_prequantized:
        raise NotServed("quantised by SGLang while loading: use hk_mxfp4 or the like for HK")
    found = config._find_matched_config(prefix, layer)
    weight, inputs = found.get("weight"), found.get("input_tensors")
    if not isinstance(weight, dict) or weight.get("is_dynamic"):
        raise NotServed("Quark's weights of more than one step")
    if found.get("output_tensors") or found.get("bias"):
        raise NotServed("Quark's quantised outputs or bias")
    kind = weight.get("qscheme")
    if kind == "per_group":
        return _quark_mx(weight, inputs)
    if weight.get("dtype") not in ("fp8_e4m3", "fp8_e4m3fn"):
        raise NotServed(f"Quark's weights in {weight.get('dtype')} {kind}")
    if kind == "per_block":
        return _quark_block(weight, inputs)
    activations = _quark_activations(inputs)
    static = bool(inputs and not inputs.get("is_dynamic"))
    if kind == "per_tensor":
        return Scheme(FP8, "tensor", activations, static)
    if kind == "per_channel":
        return Scheme(FP8, "channel", activations, static, column=False)
    raise NotServed(f"weight scales {kind}")


def _quark_block(weight: dict[str, Any], inputs: dict[str, Any] | None) -> Scheme:
    scheme = _block(weight.get("block_size"), ("weight_scale", "weight_scale_inv"))
    if not inputs:
        return replace(scheme, activations="none")
    if inputs.get("dtype") not in ("fp8_e4m3", "fp8_e4m3fn") or not inputs.get("is_dynamic"):
        raise NotServed(f"activations in {inputs.get('dtype')} quantised {inputs.get('qscheme')}")
    return scheme


def _quark_activations(inputs: dict[str, Any] | None) -> str:
    if not inputs:
        return "none"
    kind, dynamic = inputs.get("qscheme"), inputs.get("is_dynamic")
    if inputs.get("dtype") in ("fp8_e4m3", "fp8_e4m3fn"):
        if kind == "per_tensor":
            return "tensor"
        if kind == "per_channel" and dynamic:
            return "token"
    raise NotServed(f"activations in {inputs.get('dtype')} quantised {kind}")


def _quark_mx(weight: dict[str, Any], inputs: dict[str, Any] | None) -> Scheme:
    format = QUARK_MX.get(str(weight.get("dtype")))
    if format is None or weight.get("group_size") != MX_BLOCK or _not_e8m0(weight):
        raise NotServed(f"Quark's weights in {weight.get('dtype')} per {weight.get('group_size')}")
    if not inputs:
        return Scheme(format, "mx", "none")
    found = QUARK_MX.get(str(inputs.get("dtype")), "")
    rounding = "mx" if found == format else found
    if (
        rounding not in FORMATS[format].roundings
        or inputs.get("group_size") != MX_BLOCK
        or inputs.get("is_dynamic") is False
        or _not_e8m0(inputs)
    ):
        raise NotServed(f"activations in {inputs.get('dtype')} with a weight in {format}")
    return Scheme(format, "mx", rounding)


def _not_e8m0(tensor: dict[str, Any]) -> bool:
    return tensor.get("scale_format") != "e8m0"


READERS = {
    Fp8Config: _fp8,
    W8A8Fp8Config: _w8a8_fp8,
    CompressedTensorsConfig: _compressed_tensors,
    QuarkConfig: _quark,
    ModelOptMixedPrecisionConfig: _modelopt_mixed,
    ModelOptFp8Config: _modelopt_fp8,
}
"""Reader of each of SGLang's configurations."""
CONFIGS = tuple(READERS)
