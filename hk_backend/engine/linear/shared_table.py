"""An embedding that shares a table with a packed LM head, and looks up its rows there.

Nothing else then reads the table, and it is released: the model's largest tensor is packed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hk_backend.engine.linear.route import PREFIX
from hk_backend.ops import look_up
from hk_backend.ops.registry import watched
from hk_backend.terms.packed_weight import TENSORS, PackedWeight

OWN_TABLE = "the model's LM head has a table of its own"
SEVERAL = "the model has several LM heads"
DRAFTS = "a draft model may read the table"
LORA = "LoRA adapters may read the table"


def share(table: torch.nn.Module, head: torch.nn.Module) -> None:
    """Makes the embedding `table` look up its rows in the packed `head`, perhaps the same layer."""
    packed: PackedWeight = head.__dict__["hk_packed"]
    for field, tensor in packed.tensors().items():
        table.register_buffer(PREFIX + field, tensor)
    table.hk_rows = packed.as_ints()  # type: ignore[assignment]


def is_shared(table: torch.nn.Module) -> bool:
    """Whether `table` looks up its rows in a packed head."""
    return hasattr(table, "hk_rows")


def is_empty(table: Any) -> bool:
    """Whether `table` looks up its rows in a packed head, and has no weight left to pack."""
    return is_shared(table) and table.weight.numel() == 0


def rows_of(table: Any, ids: torch.Tensor) -> torch.Tensor:
    """The rows `ids` of a `table` that shares a packed head, `[*ids.shape, K]`, in its dtype."""
    buffers, dtype = table._buffers, table.weight.dtype
    parts = [buffers.get(PREFIX + field) for field in TENSORS]
    if watched(ids):
        found: torch.Tensor = torch.ops.hk_backend.look_up(ids, *parts, table.hk_rows, dtype)
        return found
    return look_up(ids, PackedWeight.from_flat([*parts, table.hk_rows]), dtype)


def in_head_or(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """An engine's `embedding(method, layer, ids)`, replaced for layers that share a head."""

    def embedding(self: Any, layer: Any, ids: torch.Tensor) -> torch.Tensor:
        return rows_of(layer, ids) if is_shared(layer) else original(self, layer, ids)

    return embedding
