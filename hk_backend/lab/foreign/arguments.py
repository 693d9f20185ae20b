"""Kernel arguments from the command line: one text for each declared argument."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from hk_backend.lab.foreign import tensors
from hk_backend.lab.foreign.tensors import TensorError

if TYPE_CHECKING:
    from hk_backend import _emulator

TENSOR = re.compile(r"(\w+)\[(.*)\](?:=(.*))?")
SCALAR = re.compile(r"([a-z]\w*)=(.*)")
VALID = (
    "an integer (4096, 0x10), a float (0.5), none, a typed number (bf16=0.5), bytes:00ff, "
    "or a tensor (f32[64,128]=normal)"
)
POINTER_BYTES = 8
HIDDEN = "hidden_"


class ArgumentError(ValueError):
    """The arguments do not fit the kernel; the message names the argument and what is valid."""


class WrongCount(ArgumentError):
    """More or fewer arguments than the kernel declares."""


def declared(kernel: _emulator.Kernel) -> list[_emulator.KernelArgument]:
    """The arguments that a launch must give: all but the hidden ones."""
    return [a for a in kernel.arguments if not a.kind.startswith(HIDDEN)]


def values(kernel: _emulator.Kernel, texts: Sequence[str], seed: int) -> list[Any]:
    """The values of a kernel's arguments. Raises `ArgumentError`.

    The same texts and seed give the same tensors.
    """
    places = declared(kernel)
    if len(texts) != len(places):
        raise WrongCount(f"{len(texts)} given; {kernel.name} declares {len(places)}")
    random = torch.Generator().manual_seed(seed)
    found = []
    for number, (place, text) in enumerate(zip(places, texts, strict=True)):
        where = f"{named(number, place)} is {text!r}"
        try:
            value = _value(text, kernel.arch, random)
        except TensorError as error:
            raise ArgumentError(f"{where}: {error}") from None
        _check_size(where, place, value)
        found.append(value)
    return found


def named(number: int, place: _emulator.KernelArgument) -> str:
    """Words for an argument in a message."""
    return f"number {number} ({place.name})" if place.name else f"number {number}"


def _value(text: str, arch: str, random: torch.Generator) -> Any:
    """The value of one text. Raises `TensorError`."""
    if text.lower() in ("none", "null"):
        return None
    for number in (lambda: int(text, 0), lambda: float(text)):
        try:
            return number()
        except ValueError:
            pass
    if tensor := TENSOR.fullmatch(text):
        dtype, shape = tensors.dtype_of(tensor[1], arch), tensors.shape_of(tensor[2])
        return tensors.tensor(dtype, shape, tensor[3] or "", random)
    if scalar := SCALAR.fullmatch(text):
        dtype = tensors.dtype_of(scalar[1], arch)
        return bytes(tensors.tensor(dtype, [1], scalar[2], random).view(torch.uint8).tolist())
    if text.startswith("bytes:"):
        try:
            return bytes.fromhex(text.removeprefix("bytes:"))
        except ValueError:
            raise TensorError("valid: pairs of hexadecimal digits after bytes:") from None
    raise TensorError(f"valid: {VALID}")


def _check_size(where: str, place: _emulator.KernelArgument, value: Any) -> None:
    """Refuse what does not fit the declared bytes; the emulator checks plain numbers itself."""
    size = f"{place.kind} of {place.size} bytes"
    if isinstance(value, torch.Tensor) and place.size != POINTER_BYTES:
        raise ArgumentError(f"{where}, a pointer of 8 bytes; valid: {size}")
    if isinstance(value, bytes) and len(value) != place.size:
        raise ArgumentError(f"{where}, {len(value)} bytes; valid: {size}")
