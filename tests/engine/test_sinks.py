"""Sinks of a layer in float32, at one address whatever an engine loads."""

from __future__ import annotations

import torch

from hk_backend.engine.sinks import FloatSinks


def test_new_values_come_to_the_same_address() -> None:
    """Prepared launches and graphs hold the address of a parameter in 16 bits as a copy."""
    held, parameter = FloatSinks(), torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    before = held.of(parameter)
    parameter.data = torch.full((4,), 2.0, dtype=torch.bfloat16)
    after = held.of(parameter)
    assert after.data_ptr() == before.data_ptr()
    assert after.tolist() == [2.0] * 4
    assert after.dtype is torch.float32


def test_a_parameter_in_float32_needs_no_copy() -> None:
    parameter = torch.ones(4)
    assert FloatSinks().of(parameter) is parameter
