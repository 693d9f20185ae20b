"""`attention_decode` on the cpu device, whose kernels are those of prefill."""

from __future__ import annotations

from hk_backend.devices.cpu import attention_prefill
from hk_backend.devices.cpu.extension import Extension
from hk_backend.terms.attention_arguments import DecodeArguments
from hk_backend.terms.checks import bad


def run(on: Extension, of: DecodeArguments) -> None:
    """Runs `attention_decode`. Values are checked before anything is written.

    Raises:
        ValueError: a request has more than `max_query_len` tokens, or `query_start_loc`,
            `seq_lens` or `block_table` holds a value that points outside its tensor.
    """
    lengths = of.query_start_loc.diff()
    if len(lengths) and int(lengths.max()) > of.max_query_len:
        bad(
            "query_start_loc",
            f"a request of {int(lengths.max())} tokens",
            f"at most max_query_len, {of.max_query_len}",
        )
    attention_prefill.run(on, of)
