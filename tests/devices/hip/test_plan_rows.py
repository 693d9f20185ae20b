"""The rows that a plan refuses, when it is made."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.devices.hip.device import OnTheHost
from tests.devices.hip.test_plan import FIRST_EXTENDS, paged
from tests.ops.cases import make


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("query_start_loc", lambda tensor: tensor.long()),
        ("query_start_loc", lambda tensor: tensor[None]),
        ("query_start_loc", lambda tensor: tensor[0]),
        ("query_start_loc", lambda tensor: tensor[:0]),
        ("query_start_loc", lambda tensor: tensor.to("meta")),
        ("seq_lens", lambda tensor: tensor[:-1]),
        ("seq_lens", lambda tensor: tensor[0]),
        ("seq_lens", lambda tensor: tensor.float()),
        ("block_table", lambda tensor: tensor[:-1]),
        ("block_table", lambda tensor: tensor[0]),
        ("block_table", lambda tensor: tensor[0, 0]),
        ("block_table", lambda tensor: tensor.to("meta")),
    ],
)
def test_rows_that_are_refused(
    name: str, change: Callable[[torch.Tensor], torch.Tensor], device: OnTheHost
) -> None:
    made = make(paged(FIRST_EXTENDS))
    rows = {key: made[key] for key in ("query_start_loc", "seq_lens", "block_table")}
    with pytest.raises(ValueError, match=f"^{name}: .* is not valid: expected"):
        device.plan_prefill(**{**rows, name: change(rows[name])}, num_tokens=38)


def on_gpu(index: int, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that says so."""
    where = property(lambda self: torch.device("cuda", index))
    return tensor.as_subclass(type("OnGpu", (torch.Tensor,), {"device": where}))


def test_rows_on_several_gpus_are_refused(
    device: OnTheHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device.mapped, "tensors_on", "cuda")
    starts, lengths = torch.zeros(3, dtype=torch.int32), torch.ones(2, dtype=torch.int32)
    assert device.plan_prefill(on_gpu(1, starts), 2, on_gpu(1, lengths), None)
    with pytest.raises(ValueError, match=r"^seq_lens: a tensor on cuda:1 is not valid"):
        device.plan_prefill(on_gpu(0, starts), 2, on_gpu(1, lengths), None)
