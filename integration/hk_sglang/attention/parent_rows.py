"""The parent's rows of a batch that it shares with HK, computed by the parent's own prefill.

A parent keeps the metadata of one batch, partly in buffers that it refills for the next. So these
rows get a shallow copy of the parent with copies of metadata. They are made before the parent's own
metadata of the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch

from hk_backend.engine.rows import Selection


@dataclass(frozen=True, eq=False)
class ParentRows:
    """The `rows` of a batch, a `batch` of these alone, and a `parent` with its metadata."""

    rows: Selection
    batch: Any
    parent: Any

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        extra: dict[str, Any],
        out: torch.Tensor,
    ) -> None:
        """Writes the parent's attention of these rows to their places in `out`.

        The pool must hold the keys of the whole batch. Arguments are those of `HKAttention.attend`.
        """
        q, k, v = (self.rows.of_tokens(tensor) for tensor in (q, k, v))
        part = self.parent.forward_extend(q, k, v, layer, self.batch, False, **extra)
        room = self.rows.output_for(out)
        room.copy_(part if part.shape == room.shape else part.reshape(room.shape))
        self.rows.scatter(room, out)


def parent_rows(parent: Any, backend: Any, batch: Any, rows: Selection) -> ParentRows:
    """The `rows` of `batch`, with metadata that class `parent` of `backend` makes."""
    part = batch_of(batch, rows)
    own = copy(backend)
    own.__class__ = parent
    own.init_forward_metadata(part)
    own.forward_metadata = _copied(own.forward_metadata)
    return ParentRows(rows, part, own)


def batch_of(batch: Any, rows: Selection) -> Any:
    """The batch of `rows` alone, as if the scheduler had sent only those."""
    count = len(batch.extend_seq_lens_cpu)
    part = copy(batch)
    for name in ("req_pool_indices", "seq_lens", "extend_seq_lens", "extend_prefix_lens"):
        setattr(part, name, rows.of_rows(getattr(batch, name)[:count]))
    for name in ("input_ids", "out_cache_loc", "positions"):
        tensor = getattr(batch, name)
        setattr(part, name, None if tensor is None else rows.of_tokens(tensor))
    part.extend_seq_lens_cpu = _listed(batch.extend_seq_lens_cpu, rows)
    part.extend_prefix_lens_cpu = _listed(batch.extend_prefix_lens_cpu, rows)
    part.extend_start_loc = part.extend_seq_lens.cumsum(0, dtype=torch.int32) - part.extend_seq_lens
    part.batch_size = len(part.extend_seq_lens_cpu)
    part.extend_num_tokens = rows.num_tokens
    if batch.seq_lens_cpu is not None:
        part.seq_lens_cpu = batch.seq_lens_cpu[:count][rows.on_host]
    part.seq_lens_sum = sum(part.extend_seq_lens_cpu) + sum(part.extend_prefix_lens_cpu)
    return part


def _listed(numbers: Sequence[int], rows: Selection) -> list[int]:
    found: list[int] = np.array(numbers)[rows.on_host].tolist()
    return found


def _copied(metadata: Any) -> Any:
    """A copy of the metadata in memory of its own, as a parent's metadata lies in its buffers."""
    if isinstance(metadata, torch.Tensor):
        return metadata.clone()
    if isinstance(metadata, tuple):
        return tuple(map(_copied, metadata))
    if not is_dataclass(metadata) or isinstance(metadata, type):
        return metadata
    found = {field.name: getattr(metadata, field.name) for field in fields(metadata) if field.init}
    return replace(metadata, **{name: _copied(value) for name, value in found.items()})
