"""FP8 scales as stored in a checkpoint, before an engine changes them.

Engines requantise merged shards that each have a scale (q, k and v, say) to the largest one. HK
keeps every shard's own scale, as one scale per output channel, which is exact.

Engines may also merge shards that end within a 128x128 block. Their scales then do not match the
blocks of the merged weight, and HK leaves such a layer to the engine.
"""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.engine.linear.shards import CheckpointError, shard_names, shard_widths
from hk_backend.engine.linear.tensor_names import was_loaded
from hk_backend.engine.linear.unset import UNSET
from hk_backend.terms.verdict import SERVED, Verdict, refused
from hk_backend.terms.weight_format import FP8_BLOCK


def as_channels(layer: Any, scales: torch.Tensor) -> torch.Tensor:
    """FP8 scales per channel, from the checkpoint's scales per shard or per output channel.

    Raises:
        CheckpointError: a scale is missing from the checkpoint.
    """
    widths = shard_widths(layer) or [len(layer.weight)]
    values = scales.data.float().flatten()
    if values.numel() != len(widths):
        return values  # per channel already
    values = _loaded(layer, values, "weight_scale")
    return values.repeat_interleave(torch.tensor(widths, device=values.device))


def one_input_scale(layer: Any) -> torch.Tensor:
    """The static scale of a layer's activations: the largest among its shards.

    Raises:
        CheckpointError: a scale is missing from the checkpoint.
    """
    scale = layer.input_scale
    if scale is None:
        raise CheckpointError(f"{shard_names(layer, 'input_scale')[0]}: not in the checkpoint")
    values = _loaded(layer, scale.data.float().flatten(), "input_scale")
    # NaN and infinity must not get lost in the maximum: pack_weight refuses them by name
    broken = ~(values.isfinite() & (values > 0))
    return values[broken][:1] if bool(broken.any()) else values.max().reshape(1)


def verdict_on_blocks(widths: list[int], ranks: int) -> Verdict:
    """Whether the 128x128 blocks of a merged layer match its scales.

    Args:
        widths: output features of each shard on this rank.
        ranks: number of ranks that share the layer.
    """
    # a shard that continues on another rank has to end on a block, too
    ends = widths if ranks > 1 else widths[:-1]
    if all(width % FP8_BLOCK == 0 for width in ends):
        return SERVED
    shards = " and ".join(map(str, widths))
    return refused(
        f"merged shards of {shards} output features do not end on blocks of {FP8_BLOCK}: quantise "
        "the model with a scale per output channel instead"
    )


def _loaded(layer: Any, values: torch.Tensor, parameter: str) -> torch.Tensor:
    """Scales of shards, if the checkpoint has all of them.

    A checkpoint may hold a merged layer with one scale, which engines load as the first shard's.
    """
    missing = values == UNSET
    if not bool(missing.any()):
        return values
    names = shard_names(layer, parameter)
    if not bool(missing[0]) and bool(missing[1:].all()) and not was_loaded(names[0]):
        return values[:1].expand_as(values)
    index = int(missing.nonzero()[0])
    name = names[index] if len(names) == len(values) else names[0]
    raise CheckpointError(f"{name}: not in the checkpoint")
