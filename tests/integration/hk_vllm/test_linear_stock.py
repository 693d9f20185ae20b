"""What vLLM computes a linear layer with by itself, as `hk-backend tune` is told."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
import tomllib
import torch
from hk_vllm.linear import stock
from vllm.model_executor.layers import utils

from hk_backend.bench.gemm.stock import GROUP
from hk_backend.kernels.gemm_formats import LAYERS
from tests.models import ROOT


def test_the_package_says_where_it_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"][GROUP].items()
    assert EntryPoint(name, value, GROUP).load() is stock.stock_linear


@pytest.mark.parametrize("format", sorted(LAYERS))
def test_on_rocm_it_is_vllm_s_own_choice(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows and a weight in 16 bits; an FP8 kernel depends on more."""
    monkeypatch.setattr(type(utils.current_platform), "is_rocm", lambda self: True)
    found = stock.stock_linear(format)
    if format not in ("bf16", "fp16"):
        assert found is None
        return
    assert found is not None
    name, multiply = found
    assert name.endswith(": rocm_unquantized_gemm")
    x, weight = torch.randn(3, 8).bfloat16(), torch.randn(5, 8).bfloat16()
    assert torch.equal(multiply(x, weight), torch.nn.functional.linear(x, weight))
