"""The interface that every device offers to the operators above it."""

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
    """Executes operators. There is one instance per process and kind of device."""

    name: str

    @property
    def weight_layout(self) -> str:
        """Layout in which the device packs weights (`LAYOUTS`); empty if it packs none."""

    def packed_bytes(self, format: str, n: int, k: int) -> int:
        """Bytes of a packed weight `[n, k]`.

        Raises:
            DeviceError: the device does not pack weights of this format.
        """

    def is_capturing(self) -> bool:
        """Whether launches are now recorded in a graph instead of run. Waits for nothing."""

    def verdict(self, request: Request) -> Verdict:
        """Whether this device serves a request that the operator's own envelope already admits."""

    def run(self, arguments: Arguments) -> None:
        """Runs an operator on arguments that `ops` has checked.

        Raises:
            ValueError: a value that only the device reads is wrong, or the device does not compute
                this case. The message names the argument; nothing has been written.
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
        """Repeats a checked call of `linear` for an x `[M, K]` of the same layout.

        The weight and bias are of the same kind as in a call that `run` has served. Returns None,
        and does nothing, if there was no such call; `run` has to serve this one.

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
        """Plans what the attention launches of a step's layers share; None if there is nothing.

        Args:
            longest: the largest of `seq_lens`, if the host knows it.

        Raises:
            ValueError: names the argument, its value and what would be valid.
        """

    def prepare_prefill(
        self, arguments: AttentionArguments, tensors: Sequence[torch.Tensor]
    ) -> PreparedPrefill | None:
        """Prepares the same call for other tensors and rows; None if there is nothing to prepare.

        Args:
            arguments: those of a call that has been run.
            tensors: query, key, value and out of that call, in the form that later calls hand over.
        """


class PreparedPrefill(Protocol):
    """The attention of one layer, checked and prepared once."""

    def launch(self, plan: Any, tensors: tuple[torch.Tensor, ...]) -> bool:
        """Enqueues the attention for a step's `plan_prefill` and a layer's tensors.

        Args:
            tensors: the layer's query, key, value and out.

        Returns:
            False, and nothing has been done, if the tensors differ in layout from the prepared
            ones.
        """


class DeviceError(RuntimeError):
    """The configured device cannot run here; the message says why and what would help."""
