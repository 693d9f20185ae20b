"""The interface that a device offers to the operators above it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from hk_backend.terms.attention_arguments import AttentionArguments, MergeArguments
from hk_backend.terms.linear_arguments import (
    LinearArguments,
    LookUpArguments,
    PackWeightArguments,
    QuantizeFp8Arguments,
    QuantizeMxArguments,
)
from hk_backend.terms.packed_weight import FlatWeight
from hk_backend.terms.requests import AttentionRequest, LinearRequest
from hk_backend.terms.verdict import Verdict

Request = AttentionRequest | LinearRequest
Arguments = (
    AttentionArguments
    | MergeArguments
    | LinearArguments
    | LookUpArguments
    | PackWeightArguments
    | QuantizeFp8Arguments
    | QuantizeMxArguments
)


class Device(Protocol):
    """Executes operators; one instance per process and kind."""

    name: str

    @property
    def weight_layout(self) -> str:
        """How it packs weights, a name in `packed_weight.LAYOUTS`; empty if it packs none."""

    def packed_bytes(self, format: str, n: int, k: int) -> int:
        """Bytes of a packed weight `[n, k]`.

        Raises:
            DeviceError: it packs none.
        """

    def is_capturing(self) -> bool:
        """Whether what is launched now is recorded in a graph instead of run. Waits for nothing."""

    def verdict(self, request: Request) -> Verdict:
        """Whether this device serves a request that the operator's own envelope admits."""

    def run(self, arguments: Arguments) -> None:
        """Run the operator whose arguments these are; `ops` has checked them.

        Raises:
            ValueError: values that only the device reads are wrong, or it does not compute this;
                the message names the argument. Nothing has been written.
            DeviceError: the device has no such operator, or failed.
        """

    def repeat_linear(
        self,
        x: torch.Tensor,
        weight: FlatWeight,
        bias: torch.Tensor | None,
        out_dtype: torch.dtype,
        x_scales: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """`linear` of an x `[M, K]` as `run` did it for another of the same layout, with a weight
        and a bias of the same kind; None, and nothing has been done: this one is to be run.

        Raises:
            DeviceError: the launch failed.
        """

    def plan_prefill(
        self,
        query_start_loc: torch.Tensor,
        num_tokens: int,
        seq_lens: torch.Tensor | None,
        block_table: torch.Tensor | None,
        longest: int | None = None,
    ) -> Any:
        """What the attention of a step's layers shares, once per step; None: nothing.

        Args:
            longest: of `seq_lens`, if the host knows it.

        Raises:
            ValueError: naming the argument, its value and what would be valid.
        """

    def prepare_prefill(
        self, arguments: AttentionArguments, tensors: Sequence[torch.Tensor]
    ) -> PreparedPrefill | None:
        """The same call for other tensors and rows; None: there is nothing to prepare.

        Args:
            arguments: of a call that has been run. `tensors`: its query, key, value and out as
                later ones will be handed over.
        """


class PreparedPrefill(Protocol):
    """A layer's attention, checked and made once."""

    def launch(self, plan: Any, tensors: tuple[torch.Tensor, ...]) -> bool:
        """Enqueue it for a step's `plan_prefill` and a layer's query, key, value and out; False,
        and nothing has been done: they are not as the prepared ones."""


class DeviceError(RuntimeError):
    """The configured device cannot run here; the message says why and what would help."""
