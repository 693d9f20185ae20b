"""Tensors that kernels reach by an address in memory: a tensor of addresses is a kernel's argument.

vLLM's block tables are such tensors: one `torch.uint64` for each KV cache group, from `data_ptr()`.
An address is found again if somebody has asked a living tensor for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

DTYPE = torch.uint64
"""Type of a tensor that holds addresses. vllm/v1/worker/gpu/block_table.py has it."""
KEPT = 4096
"""Number of storages after which those that have gone are forgotten."""


def is_table(tensor: torch.Tensor) -> bool:
    """Whether a kernel's argument may hold addresses."""
    return tensor.dtype == DTYPE and tensor.dim() == 1 and tensor.is_contiguous()


class AskedAddresses:
    """The storages of all tensors whose `data_ptr()` was called while this was installed."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def install(self) -> None:
        """Note each call of `Tensor.data_ptr` in this process, from now on."""
        plain = torch.Tensor.data_ptr

        def data_ptr(tensor: Any) -> int:
            self.note(tensor)
            return plain(tensor)

        torch.Tensor.data_ptr = data_ptr  # type: ignore[assignment, method-assign]

    def note(self, tensor: torch.Tensor) -> None:
        """Remember the storage of `tensor`, without keeping it alive."""
        storage = tensor.untyped_storage()
        if storage.device.type == "cpu" and storage.nbytes():
            if len(self._storages) >= KEPT:
                self._forget()
            self._storages[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes()

    def find(self, address: int) -> tuple[int, int] | None:
        """Begin and bytes of the living storage that holds `address`, or None."""
        for begin, (reference, size) in self._storages.items():
            if begin <= address < begin + size and not reference.expired():
                return begin, size
        return None

    def _forget(self) -> None:
        kept = {at: item for at, item in self._storages.items() if not item[0].expired()}
        self._storages = kept
