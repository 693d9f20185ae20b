"""compressed-tensors checkpoints with rotated weights, which SGLang reads and only HK serves.

See hk_backend.engine.linear.rotated.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.layers.quantization.auto_round import AutoRoundConfig
from sglang.srt.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
)
from sglang.srt.layers.quantization.compressed_tensors.utils import (
    check_equal_or_regex_match,
    find_matched_target,
    should_ignore_layer,
)
from sglang.srt.layers.quantization.unquant import UnquantizedFusedMoEMethod
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from hk_backend.engine.linear.auto_round import rotation_in
from hk_backend.engine.linear.compressed_tensors import read_groups, rotation_of
from hk_backend.engine.linear.packed_layer import EXPERTS, no_kernel
from hk_backend.engine.linear.rotated import TWICE, RotationError, check_agreement, only_hk
from hk_backend.engine.linear.shards import merged_names
from hk_backend.engine.linear.transforms import (
    EMBEDDING,
    LINEAR,
    Online,
    check_not_linear,
    online,
)
from hk_backend.engine.patching import wrap


def install() -> None:
    """Changes SGLang's configuration; harmless to call again."""
    config = CompressedTensorsConfig
    wrap(config, "_quantization_scheme_map_from_config", read_groups, static=True)
    wrap(config, "get_linear_scheme", _stock_scheme)
    wrap(AutoRoundConfig, "from_config", _auto_round, static=True)


def _auto_round(original: Any, config: dict[str, Any]) -> Any:
    """SGLang's configuration of an auto-round checkpoint, whose rotations SGLang ignores.

    Raises:
        RotationError: inputs of its layers are rotated.
    """
    found = original(config)
    if rotation := rotation_in(config):
        raise only_hk("auto-round", rotation, no_kernel(found))
    return found


def rotation_of_layer(config: Any, layer: Any, name: str) -> int:
    """Rotation of the weight of the linear `layer` called `name`; 0 if there is none.

    Raises:
        RotationError: shards of a merged layer have different rotations, or HK does not do it.
    """
    if not isinstance(config, CompressedTensorsConfig):
        return 0
    rotation, turned = _own_rotation(config, layer, name), transforms_of(config, name)
    if turned.why:
        raise RotationError(f"{name}: {turned.why}; SGLang ignores it")
    if rotation and turned.modules:
        raise only_hk(name, rotation, TWICE)
    return rotation or turned.rotation


def transforms_of(config: Any, name: str) -> Online:
    """Transforms of the linear layer called `name` that are left to whoever serves it."""
    if not isinstance(config, CompressedTensorsConfig):
        return Online()
    return online(config.config, merged_names(name, config.packed_modules_mapping))


def _own_rotation(config: Any, layer: Any, name: str) -> int:
    if not _rotations(config):
        return 0
    mapping, schemes = config.packed_modules_mapping, config.target_scheme_map
    if config.linear_fp8_config or should_ignore_layer(name, config.ignore, mapping):
        return 0
    names = merged_names(name, mapping)
    if check_equal_or_regex_match(name, schemes.keys()):
        names = [name, *names]  # SGLang applies this target to all shards
    targets = {each: find_matched_target(each, layer, schemes.keys(), mapping) for each in names}
    rotations = {each: _rotation(schemes[target]) for each, target in targets.items()}
    check_agreement(name, rotations)
    return next(iter(rotations.values()))


def checked_method(method: Any, config: Any, layer: Any, name: str) -> Any:
    """SGLang's own method for a layer that is not linear.

    Raises:
        RotationError: the layer is rotated, or its experts are quantised in a checkpoint with
            rotated weights.
    """
    if isinstance(layer, FusedMoE) and isinstance(config, CompressedTensorsConfig):
        rotations = _rotations(config)
        if rotations and not isinstance(method, UnquantizedFusedMoEMethod):
            raise only_hk(name, max(rotations), EXPERTS)
        check_not_linear(config.config, name, LINEAR, experts=True)
    elif isinstance(layer, VocabParallelEmbedding) and isinstance(config, CompressedTensorsConfig):
        like = LINEAR if isinstance(layer, ParallelLMHead) else EMBEDDING
        check_not_linear(config.config, name, like)
    return method


def _stock_scheme(
    original: Any, config: Any, layer: Any, layer_name: str = "", matched_target: Any = None
) -> Any:
    """SGLang's own scheme of an LM head, or of a linear layer that HK leaves to it.

    Raises:
        RotationError: the weight is rotated.
    """
    if matched_target is None:
        rotation = rotation_of_layer(config, layer, layer_name)
    else:
        rotation = _rotation(config.target_scheme_map[matched_target])
    if rotation:
        raise only_hk(layer_name, rotation, no_kernel(layer))
    return original(config, layer, layer_name, matched_target)


def _rotations(config: Any) -> set[int]:
    """Rotations of all groups of a configuration."""
    return {_rotation(scheme) for scheme in config.target_scheme_map.values()} - {0}


def _rotation(scheme: dict[str, Any]) -> int:
    return rotation_of(scheme.get("weights"))
