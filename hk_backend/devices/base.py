"""The interface that every device offers to the operators above it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Protocol

import torch

from hk_backend.terms.attention_step import AttentionStep
from hk_backend.terms.verdict import Verdict


class Arguments(Protocol):
    """The checked arguments of an operator's call: a dataclass of `hk_backend.terms`."""

    operator: ClassVar[str]


class Request(Protocol):
    """A request to an operator before there are tensors (`hk_backend.terms.requests`)."""

    operator: ClassVar[str]

    @property
    def device_type(self) -> str: ...


class Device(Protocol):
    """Executes operators. There is one instance per process and kind of device."""

    name: str
    prepared_calls: dict[Hashable, Any]
    """Prepared calls, which `ops` keeps here because they end with the device."""

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

    def restore(self) -> None:
        """Restores memory of the device's own, which an engine's sleep may have cleared or filled.

        Captured graphs use it, too. Waits for the device.
        """

    def verdict(self, request: Request) -> Verdict:
        """Whether this device serves a request that the operator's own envelope already admits."""

    def run(self, arguments: Arguments) -> None:
        """Runs an operator on arguments that `ops` has checked.

        Raises:
            ValueError: a value that only the device reads is wrong, or the device does not compute
                this case. The message names the argument; nothing has been written.
            DeviceError: the device has no such operator, or failed.
        """

    def prepare(
        self, arguments: Arguments, tensors: Sequence[torch.Tensor | None]
    ) -> Prepared | None:
        """Prepares a checked call, to be run and repeated for other tensors and rows.

        Args:
            tensors: the call's tensors, in the form that repetitions hand over. For attention these
                are query, key, value and out; for a linear layer `LinearArguments.tensors`.

        Returns:
            None if the device has nothing to prepare.
        """


class Prepared(Protocol):
    """A call that has been checked and prepared once, to be repeated."""

    def launch(self, step: AttentionStep | None, tensors: Sequence[torch.Tensor | None]) -> bool:
        """Enqueues the same work for a step's rows, if the call has any, and other tensors.

        Returns:
            False, and nothing has been done, if the tensors differ in layout from the prepared
            ones.

        Raises:
            DeviceError: the launch failed.
        """


class DeviceError(RuntimeError):
    """The configured device cannot run here; the message says why and what would help."""
