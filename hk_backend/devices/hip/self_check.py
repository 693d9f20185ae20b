"""The self-check of a kernel: a small problem, compared with the reference before its first use.

Compilers and drivers differ from those that a code object was tested with. The self-check finds a
kernel that computes a wrong result on this machine before a user's token goes through it.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch

from hk_backend.devices.hip.operator import Gpus, HipOperator
from hk_backend.kernels import KernelEntry
from hk_backend.terms.verdict import SERVED, Verdict, refused


def self_check(device: Gpus, operator: HipOperator, kernel: KernelEntry, index: int) -> Verdict:
    """Runs `kernel` on GPU `index`, and refuses it if its error exceeds that of rounding."""
    target = device.memory.torch_device(index)
    with torch.device("cpu"):  # an engine may have made a GPU torch's default device
        problem = operator.self_check_problem(kernel)
    for way in operator.ways(kernel, device.catalogue):
        arguments = moved(problem.arguments, target)
        call = operator.prepare(arguments, device.catalogue)
        if kernel.operator == call.kernels[0].operator:
            call = replace(call, kernels=(kernel,))
        for launch in way(call, device.gpu(index)):
            device.launch(launch, index)
        with torch.device("cpu"):
            errors = {
                name: error(getattr(arguments, name).cpu(), expected)
                for name, (expected, error) in problem.expected.items()
            }
        if not all(error <= problem.limit for error in errors.values()):
            found = ", ".join(f"{error:.2e} of {name}" for name, error in errors.items())
            return refused(
                f"{kernel.name} failed its self-check on {target}: error {found}; allowed "
                f"{problem.limit:.2e}"
            )
    return SERVED


def moved(value: Any, target: torch.device) -> Any:
    """The same arguments, with all their tensors on another device."""
    if isinstance(value, torch.Tensor):
        return value.to(target)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    parts = {field.name: moved(getattr(value, field.name), target) for field in fields(value)}
    return replace(value, **parts)
