"""Rotated checkpoints in vLLM: HK serves them, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest
import vllm.model_executor.kernels.linear as lists
from vllm.model_executor.kernels.linear.mxfp4.base import MxFp4LinearKernel
from vllm.model_executor.kernels.linear.mxfp8.Mxfp8LinearKernel import Mxfp8LinearKernel
from vllm.platforms import PlatformEnum

from tests.integration.hk_vllm import linear_layers
from tests.integration.shared.linear.rotated import only_hk, refused, written

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


@pytest.mark.parametrize(("format", "kernel"), [("mxfp4", "Mxfp4"), ("mxfp8", "Mxfp8")])
def test_a_disabled_kernel(format: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM would go on to the next in its list."""
    monkeypatch.setenv("VLLM_DISABLED_KERNELS", f"HK{kernel}LinearKernel")
    assert re.match(only_hk(""), refused(linear_layers, written(format=format)))


@pytest.mark.parametrize(
    ("format", "kernels", "base"),
    [
        ("mxfp4", "_POSSIBLE_MXFP4_KERNELS", MxFp4LinearKernel),
        ("mxfp8", "_POSSIBLE_MXFP8_KERNELS", Mxfp8LinearKernel),
    ],
)
def test_another_kernel(
    format: str, kernels: str, base: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of somebody who comes before HK."""
    able = classmethod(lambda cls, _: (True, None))
    members = {"is_supported": classmethod(lambda cls: (True, None)), "can_implement": able}
    theirs: Any = type("TheirKernel", (base,), members)
    theirs.__abstractmethods__ = frozenset()
    monkeypatch.setitem(getattr(lists, kernels), PlatformEnum.CPU, [theirs])
    why = "vLLM has chosen TheirKernel"
    assert re.match(only_hk(why), refused(linear_layers, written(format=format)))
