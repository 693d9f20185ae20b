"""Merged layers that a checkpoint leaves unquantised, by the names of their shards.

SGLang reads such names only for models with `packed_modules_mapping`, which Llama, Mistral and Qwen
lack.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
)
from sglang.srt.layers.quantization.compressed_tensors.utils import check_equal_or_regex_match
from sglang.srt.layers.quantization.quark.quark import QuarkConfig

from hk_backend.engine.linear.shards import CheckpointError, merged_names

LISTS = {CompressedTensorsConfig: "ignore", QuarkConfig: "exclude_layers"}
"""A configuration's field with the layers left unquantised: names, and patterns after `re:`."""


def note_ignored(config: Any, name: str) -> None:
    """Makes `config` leave the layer `name` unquantised if it leaves every shard so.

    Raises:
        CheckpointError: it leaves only some of the shards unquantised.
    """
    field = next((field for kind, field in LISTS.items() if isinstance(config, kind)), None)
    own = name.rpartition(".")[2]
    if field is None or own in config.packed_modules_mapping:
        return
    patterns, shards = getattr(config, field), merged_names(name, None)
    if check_equal_or_regex_match(name, patterns):
        return
    left = [shard for shard in shards if check_equal_or_regex_match(shard, patterns)]
    if left == shards:
        setattr(config, field, [*patterns, name])
    elif left:
        others = [shard for shard in shards if shard not in left]
        raise CheckpointError(
            f"{name}: the checkpoint leaves {left[0]} as it is, but not {others[0]}; SGLang runs "
            "them as one layer"
        )
