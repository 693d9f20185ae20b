"""Triton's kernels on the emulated GPU, in a process of their own: Triton has one driver in each.

    python -m tests.lab.foreign.triton_program gfx950 [CASE ...]

It prints JSON: the traceback of each case that failed.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hk_backend import _emulator
from hk_backend.lab.foreign import triton_driver
from hk_backend.lab.foreign.launch import EmulatedGpu, Ran
from hk_backend.lab.foreign.triton_driver import KernelFinding, TritonGpu
from hk_backend.lab.toolchain.elf import Elf
from tests.kernels.mutants import NOP, Mutant

Case = Callable[[TritonGpu], None]
FP8 = {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}
M, N, DEPTH = 32, 64, 96
ULP = 2.0**-23


def case_add(gpu: TritonGpu) -> None:
    """The launch is recorded with its grid and counters, and the tail is masked."""
    from tests.lab.foreign.triton_kernels import add

    x, y, out = torch.randn(1000), torch.randn(1000), torch.full((1024,), torch.nan)
    add[(4,)](x, y, out, 1000, BLOCK=256)
    assert torch.equal(out[:1000], x + y)
    assert out[1000:].isnan().all()
    (launch,) = gpu.launches
    assert (launch.kernel, launch.grid, launch.block) == ("add", (4, 1, 1), (256,))
    assert launch.counters is not None
    # masked lanes count where Triton stores them past the end of a buffer descriptor
    assert 4 * 1000 <= launch.counters.bytes["global_write"] <= 4 * 1024
    assert not launch.findings
    add[(0,)](x, y, out, 1000, BLOCK=256)
    assert len(gpu.launches) == 1


def product(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a, b = torch.randn(M, DEPTH).to(dtype), torch.randn(N, DEPTH).to(dtype)
    return a, b, torch.full((M, N), torch.nan)


def check_product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Products of so few bits are exact in float32; each of the sums rounds once."""
    a, b = a.double(), b.double()
    bound = DEPTH * ULP * (a.abs() @ b.abs().T)
    assert bool(((c - a @ b.T).abs() <= bound).all())


def case_dot(gpu: TritonGpu) -> None:
    from tests.lab.foreign.triton_kernels import dot

    for dtype in (torch.bfloat16, torch.float16, FP8[gpu.arch]):
        a, b, c = product(dtype)
        dot[(1,)](a, b, c, DEPTH, M=M, N=N, K=32)
        check_product(a, b, c)
        counters = gpu.launches[-1].counters
        assert counters is not None
        assert counters.matrix_flops >= 2 * M * N * DEPTH
        assert any(name.startswith("v_mfma") for name in counters.by_mnemonic)


def case_autotuning(gpu: TritonGpu) -> None:
    """The clock chooses the least work, and leaves no launch behind."""
    from tests.lab.foreign.triton_kernels import repeated

    x, out = torch.randn(4096), torch.zeros(4096)
    repeated[(16,)](x, out, 4096, BLOCK=256)
    assert repeated.best_config.kwargs == {"REPEAT": 1}
    assert torch.equal(out, x)
    (launch,) = gpu.launches
    assert launch.modelled is None


def case_race(gpu: TritonGpu) -> None:
    from tests.lab.foreign.triton_kernels import total

    x, out = torch.ones(8), torch.zeros(1)
    with pytest.raises(KernelFinding) as caught:
        total[(8,)](x, out)
    said, launch = str(caught.value), caught.value.launch
    assert said.startswith("global-race: ")
    assert "in total at 0x" in said
    assert "triton_kernels.py:" in said
    assert gpu.launches == [launch]
    gpu.strict = False
    total[(8,)](x, out)
    assert gpu.launches[-1].findings


def case_scalars(gpu: TritonGpu) -> None:
    from tests.lab.foreign.triton_kernels import scalars

    out = torch.full((6,), torch.nan, dtype=torch.float64)
    scalars[(1,)](out, 0.5, 2**40 + 1, True, None, (7, torch.tensor([-3.0])))
    assert out.tolist() == [0.5, 2**40 + 1, 1, 7, -3, 1]


def case_reinterpreted(gpu: TritonGpu) -> None:
    """A view of bytes as FP8, which is how engines pass FP8 to Triton."""
    import triton
    import triton.language as tl

    from tests.lab.foreign.triton_kernels import dot

    a, b, c = product(FP8[gpu.arch])
    name = {"gfx942": tl.float8e4b8, "gfx950": tl.float8e4nv}[gpu.arch]
    left, right = (triton.reinterpret(each.view(torch.uint8), name) for each in (a, b))
    dot[(1,)](left, right, c, DEPTH, M=M, N=N, K=32)
    check_product(a, b, c)


def case_addresses(gpu: TritonGpu) -> None:
    """Memory behind a tensor of addresses is mapped, but not that of a tensor which is gone."""
    from tests.lab.foreign.triton_kernels import add_one

    base, other = torch.zeros(64), torch.zeros(16)
    view = base[32:]
    table = torch.tensor([view.data_ptr(), other.data_ptr(), 0], dtype=torch.uint64)
    del base
    given = table.tolist()
    add_one[(2,)](table, 16, BLOCK=16)
    assert view.tolist() == [1.0] * 16 + [0.0] * 16
    assert other.tolist() == [1.0] * 16
    assert table.tolist() == [*given[:2], 7]
    del view
    with pytest.raises(KernelFinding, match="out-of-bounds"):
        add_one[(1,)](table, 16, BLOCK=16)


def case_inductor(gpu: TritonGpu) -> None:
    """`torch.compile` makes one kernel of a norm, and the GPU executes it."""
    from hk_backend.lab.foreign import inductor

    inductor.install(gpu)

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return scaled.to(x.dtype) * weight

    x, weight = torch.randn(7, 256).bfloat16(), torch.randn(256).bfloat16()
    found = torch.compile(norm)(x, weight)
    wide = x.double()
    exact = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5) * weight
    # two roundings to bf16, of the norm and of the product
    assert bool(((found - exact).abs() <= 2 * 2.0**-8 * exact.abs()).all())
    assert [launch.kernel.startswith("triton_") for launch in gpu.launches] == [True]
    with gpu.timing() as timed:
        torch.compile(norm)(x, weight)
    assert len(timed) == 1


def case_timing(gpu: TritonGpu) -> None:
    """More work takes longer; nothing that was executed is recorded as a launch without a time."""
    from tests.lab.foreign.triton_kernels import add

    def microseconds(count: int) -> float:
        x, out = torch.randn(count), torch.zeros(count)
        with gpu.timing() as launches:
            add[(-(-count // 256),)](x, x, out, count, BLOCK=256)
        (launch,) = launches
        assert launch.modelled is not None
        assert launch.counters is None
        return launch.modelled.microseconds

    times = [microseconds(count) for count in (1 << 16, 1 << 20, 1 << 22)]
    assert 0 < times[0] < times[1] < times[2]
    add[(4,)](*(torch.zeros(1000) for _ in range(3)), 1000, BLOCK=256)
    assert gpu.launches[-1].modelled is None
    assert all(each.modelled is None for each in gpu.launches)


def case_published(gpu: TritonGpu) -> None:
    """Kernels of published figures compute what they are named after; one figure is what it was."""
    from hk_backend.lab.stock import published, published_launches

    if gpu.arch != published.ARCH:
        return
    for of in (
        published_launches.Attention(64, False, 192, 1, 2, 1),
        published_launches.Attention(64, True, 192, 1, 2, 1),
        published_launches.Product(512),
        published_launches.GroupedProduct(2, 256, 256, 128),
    ):
        tensors = [each.normal_() if each.is_floating_point() else each for each in of.tensors()]
        of.launch(tensors, of.configurations[-1])  # type: ignore[arg-type]
        result, exact, mass = definition(of, tensors)
        # 8 bits for bf16, whose weights and results are rounded once each
        assert bool(((result.double() - exact).abs() <= 2 * 2.0**-8 * mass).all()), of
    figure = next(each for each in published.FIGURES if each.kernel == "attention d64 full")
    assert isinstance(figure.of, published_launches.Attention)
    assert figure.of.tokens == 1024
    now = published.rate(gpu, figure.of)
    if published.triton_version() == "3.9":  # which of the builds is fastest depends on it
        assert now == pytest.approx(figure.modelled["3.9"], rel=published.SAME)


def definition(of: Any, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The result of a kernel, its definition in float64, and the mass that bounds an error."""
    if hasattr(of, "causal"):
        q, k, v, out = (tensors[at].double() for at in (0, 1, 2, 4))
        scores = q @ k.transpose(2, 3) * of.head_size**-0.5
        if of.causal:
            hidden = torch.ones(of.tokens, of.tokens, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -torch.inf)
        weights = scores.softmax(-1)
        return out, weights @ v, weights @ v.abs()
    a, b, c = tensors[:3]
    left, right = a.double(), b.double()
    if b.ndim == 3:
        left = left.view(len(b), -1, a.shape[1])
        c = c.view(len(b), -1, c.shape[1])
    turned = right.transpose(-1, -2)
    return c, left @ turned, left.abs() @ turned.abs()


def case_dot_scaled(gpu: TritonGpu) -> None:
    """Triton's scaled product is right in each format, and wrong with another row's scales."""
    from hk_backend.lab.stock import dot_scaled
    from hk_backend.lab.stock.layers import Layer

    if gpu.arch != "gfx950":
        return
    (kernel,) = dot_scaled.kernels(gpu)
    assert kernel.lacks(Layer("mxfp4_mxfp8", 16, 64, 544))
    for format in dot_scaled.FORMATS:
        for m in (5, 70):
            assert 0 < kernel.error(Layer(format, m, 80, 512)) <= 1
    operands = Layer("mxfp4_mxfp8", 5, 80, 512).operands()
    assert operands.weight_scale is not None
    operands.weight_scale.copy_(operands.weight_scale.roll(3, 0))
    out = dot_scaled.run(operands)
    operands.weight_scale.copy_(operands.weight_scale.roll(-3, 0))
    assert operands.error_of(out) > 10


def case_descriptors(gpu: TritonGpu) -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    from tests.lab.foreign.triton_kernels import described

    tile = TensorDescriptor.from_tensor(torch.zeros(16, 16), [16, 16])
    with pytest.raises(NotImplementedError, match="described: tensor descriptors are not emul"):
        described[(1,)](tile, torch.zeros(16, 16))


def case_arch(gpu: TritonGpu) -> None:
    with pytest.raises(ValueError, match="arch 'gfx90a'; valid: gfx942, gfx950"):
        TritonGpu("gfx90a")


def case_mutants(gpu: TritonGpu) -> None:
    """Without any one of its waits or barriers, a Triton kernel has findings as ours have."""
    from tests.lab.foreign.triton_kernels import dot

    a, b, c = product(torch.bfloat16)
    made = dot.warmup(a, b, c, DEPTH, M=M, N=N, K=32, grid=(1,))
    binary, block = made.asm["hsaco"], 64 * made.metadata.num_warps
    elf = Elf(binary)
    text = elf.sections[".text"]
    emulated = EmulatedGpu(gpu.arch)

    def run(mutant: Mutant) -> Ran:
        kernel = _emulator.CodeObject.load(mutant.apply(binary, text.offset)).kernel("dot")
        values = (a, b, torch.full((M, N), torch.nan), DEPTH, None, None)
        return emulated.launch(kernel, [1], block, values, made.metadata.shared)

    unchanged = run(Mutant(0, (), "none"))
    assert unchanged.counters is not None
    assert not unchanged.findings
    caught: dict[str, set[str]] = {"s_waitcnt": set(), "s_barrier": set()}
    begin, size = elf.place("dot")
    code = binary[begin : begin + size]
    for place, instruction in _emulator.disassemble(code, gpu.arch):
        pc = begin - text.offset + place
        name = instruction.split()[0]
        if name in caught and pc in unchanged.counters.executed:
            found = run(Mutant(pc, ((pc, NOP << 16),), "removed")).findings
            assert found, f"nobody misses {instruction} at {pc:#x}"
            caught[name] |= {one.check for one in found}
    assert "unwaited-register" in caught["s_waitcnt"]
    assert "lds-race" in caught["s_barrier"]


CASES = {
    name.removeprefix("case_"): case
    for name, case in list(globals().items())
    if name.startswith("case_")
}


def main(arch: str, *names: str) -> None:
    sys.modules["vllm"] = None  # type: ignore[assignment]  # seconds to import, and not needed
    gpu = triton_driver.install(arch)
    failed: dict[str, Any] = {}
    for name in names or CASES:
        gpu.launches.clear()
        gpu.strict = True
        torch.manual_seed(0)
        try:
            CASES[name](gpu)
        except Exception:
            failed[name] = traceback.format_exc()
    print(json.dumps(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
