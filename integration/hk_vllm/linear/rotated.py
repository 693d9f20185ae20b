"""compressed-tensors checkpoints with rotated weights, which vLLM reads and only HK serves.

See hk_backend.engine.linear.rotated. checkpoints.py passes a weight's rotation on to HK's kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
)
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

from hk_backend.engine.linear.compressed_tensors import read_groups, rotation_of
from hk_backend.engine.linear.packed_layer import no_kernel
from hk_backend.engine.linear.rotated import check_agreement, only_hk, verdict_on_shards
from hk_backend.engine.linear.shards import merged_names
from hk_backend.engine.patching import wrap
from hk_backend.ops import LinearRequest
from hk_backend.terms.verdict import SERVED
from hk_vllm.linear.kernel_lists import counterpart
from hk_vllm.linear.layer import device_type, verdict_on
from hk_vllm.linear.mx_kernels import HKMxKernel


def install() -> None:
    """Changes vLLM's configuration; harmless to call again."""
    wrap(CompressedTensorsConfig, "_quantization_scheme_map_from_config", read_groups, static=True)
    wrap(CompressedTensorsConfig, "get_scheme_dict", _scheme_of)


def _scheme_of(original: Any, config: Any, layer: Any, layer_name: str | None = None) -> Any:
    """The scheme of a layer; vLLM takes that of a merged layer's first shard for all.

    Raises:
        RotationError: shards have different rotations, or the layer is not linear.
    """
    found = original(config, layer, layer_name)
    if layer_name is None or not any(map(_rotation, config.target_scheme_map.values())):
        return found
    if not isinstance(layer, LinearBase | ParallelLMHead):
        if rotation := _rotation(found):
            raise only_hk(layer_name, rotation, no_kernel(layer))
        return found
    shards = merged_names(layer_name, config.packed_modules_mapping)
    of_shards = {shard: _rotation(original(config, layer, shard)) for shard in shards}
    check_agreement(layer_name, {layer_name: _rotation(found)} | of_shards)
    return found


def _rotation(scheme: dict[str, Any] | None) -> int:
    return rotation_of((scheme or {}).get("weights"))


def check_served(name: str, rotation: int, kernel: Any, created: Mapping[str, Any]) -> None:
    """Checks that HK serves a rotated layer.

    Args:
        name: name of the layer.
        kernel: the kernel that vLLM has chosen for the layer.
        created: arguments with which vLLM's schemes create the layer's weights.

    Raises:
        RotationError: the kernel is not HK's, or HK does not serve the layer.
    """
    if not isinstance(kernel, HKMxKernel):
        raise only_hk(name, rotation, _chosen(kernel))
    n, k = sum(created["output_partition_sizes"]), created["input_size_per_partition"]
    facts = device_type(), created["params_dtype"], kernel.format(), n, k, kernel.activations()
    verdict = verdict_on_shards(k, rotation, created["input_size"] // k) and verdict_on(
        LinearRequest(*facts, rotation=rotation)
    )
    if not verdict:
        raise only_hk(name, rotation, verdict.why)


def _chosen(kernel: Any) -> str:
    """Text of what vLLM has chosen instead of HK, with HK's reason if it refused."""
    ours = counterpart(kernel, weight_only=False)
    verdict = SERVED if ours is None else ours.verdict(kernel.config)
    why = "" if verdict else f", because {verdict.why}"
    return f"vLLM has chosen {type(kernel).__name__}{why}"
