"""Serves a scenario as e2e/runner.py does, on SGLang's CPU platform, with what SGLang's attention
backends for ROCm need: its Triton kernels in Triton's interpreter, AITER's in torch."""

from __future__ import annotations

from hk_backend.engine.evidence import stopwatch
from tests.integration.hk_sglang.e2e import runner
from tests.integration.hk_sglang.rocm import aiter_kernels, machine

main = runner.main


def prepare() -> None:
    stopwatch.QUIET = 0.0  # answers are kept on a busy machine, too
    machine.interpret_triton()
    machine.stub(["aiter"])
    aiter_kernels.install()
    runner.prepare()
    from sglang.kernels.ops.quantization import fp8_kernel

    fp8_kernel.sgl_per_tensor_quant_fp8 = aiter_kernels.sgl_per_tensor_quant_fp8
