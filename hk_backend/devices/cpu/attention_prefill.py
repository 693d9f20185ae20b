"""`attention_prefill` on the cpu device: passes addresses, sizes and strides to `_cpu`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hk_backend.devices.cpu.extension import Extension
from hk_backend.devices.cpu.prepared_attention import PreparedAttention, call_of, rows_of
from hk_backend.terms.attention_arguments import AttentionArguments


def run(on: Extension, of: AttentionArguments) -> None:
    """Runs `attention_prefill`. The extension checks values before it writes anything.

    Raises:
        ValueError: `query_start_loc`, `key_start_loc`, `seq_lens` or `block_table` holds a value
            that points outside its tensor.
    """
    call, kept = call_of(on, of)
    key, value = of.stored()
    kv_tokens = 0 if of.paged_kv is not None else len(key)
    rows = rows_of(of)
    lse = 0 if of.lse is None else of.lse.data_ptr()
    addresses = of.query.data_ptr(), key.data_ptr(), value.data_ptr(), of.out.data_ptr(), lse
    call.run(torch.get_num_threads(), addresses, *rows.given(len(of.query), kv_tokens))
    del kept  # the call takes bare addresses: these tensors had to live until here


def prepare(
    on: Extension, of: AttentionArguments, tensors: Sequence[torch.Tensor | None]
) -> PreparedAttention | None:
    """Prepares calls like this one for other rows (`Device.prepare`)."""
    return PreparedAttention.of(on, of, tensors)
