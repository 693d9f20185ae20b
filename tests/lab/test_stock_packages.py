"""Packages of kernels without an engine: FlyDSL, fbtriton, and AITER's code objects.

Each wants an environment of its own, so that the tests of their kernels are skipped elsewhere.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hk_backend import _emulator
from hk_backend.kernels import catalogue
from hk_backend.lab.foreign.launch import Ran
from hk_backend.lab.foreign.triton_driver import KernelFinding, TritonGpu
from hk_backend.lab.stock import (
    aiter_kernels,
    aiter_products,
    engines,
    fbtriton_kernels,
    flydsl_gpu,
    flydsl_kernels,
)
from hk_backend.lab.stock.batches import ROWS, Batch, new_tokens, packed_tokens
from hk_backend.lab.stock.cases import Case
from hk_backend.lab.stock.comparison import Comparison
from hk_backend.lab.stock.kernel import KEPT, tolerating
from hk_backend.lab.stock.layers import Layer
from hk_backend.lab.stock.linear import StockLinear
from hk_backend.lab.stock.ours import OurLinear

PROMPTS = Batch((600, 600), (600, 600), 8, 1, 128)


def found(*checks: str) -> Ran:
    """A launch with one finding of each check."""
    findings: Any = [SimpleNamespace(check=check, message=f"{check}: why") for check in checks]
    return Ran("kernel", (1,), (64,), findings)


def test_tolerated_findings_hide_no_others() -> None:
    gpu = TritonGpu("gfx950")
    before = gpu.gpu.max_findings
    gpu.launches.append(found("lds-race"))  # from before: not this context's
    with tolerating(gpu, ("hazard",)):
        assert not gpu.strict
        assert gpu.gpu.max_findings == KEPT
        gpu.launches.append(found("hazard"))
    assert gpu.strict
    assert gpu.gpu.max_findings == before
    with pytest.raises(KernelFinding, match=r"^lds-race: why$"), tolerating(gpu, ("hazard",)):
        gpu.launches.append(found("hazard", "lds-race"))
    with tolerating(gpu, ()):
        assert gpu.strict


def test_a_kernel_with_a_finding_keeps_its_time_and_has_no_ratio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def error(kernel: object, of: object) -> float:
        raise KernelFinding(found("lds-race"))

    monkeypatch.setattr(StockLinear, "error", error)
    monkeypatch.setattr(OurLinear, "error", lambda kernel, of: 0.5)
    for kernel in (StockLinear, OurLinear):
        monkeypatch.setattr(kernel, "microseconds", lambda kernel, of: 2.0)
    stock = StockLinear(TritonGpu("gfx950"), "stock", ("bf16",), lambda operands: operands.x)
    cases = [Case("a layer", Layer("bf16", 16, 64, 64))]
    (row,) = Comparison("gfx950", cases, [stock]).run(lambda text: None)
    assert (row.error, row.finding) == ("", "lds-race: why")
    data = row.as_json()
    assert (data["hk_microseconds"], data["stock_microseconds"]) == (2, 2)
    assert (data["ratio"], data["stock_error"]) == (None, None)


def test_a_kernel_is_held_against_float64_where_it_can_be_and_refuses_the_rest() -> None:
    tried: list[int] = []

    def run(of: Any) -> torch.Tensor:
        tried.append(of.layer.m)
        return of.x.float() @ of.weight.float().T

    stock = StockLinear(
        TritonGpu("gfx950"),
        "stock",
        ("bf16",),
        run,
        lambda layer: "" if layer.m > 16 else "more rows",
        lambda layer: replace(layer, m=256),
    )
    assert stock.refuses(Layer("bf16", 16, 64, 64)) == "more rows"
    assert stock.refuses(Layer("fp8_block", 32, 64, 64)) == "it does not multiply fp8_block"
    assert not stock.refuses(Layer("bf16", 32, 64, 64))
    assert stock.error(Layer("bf16", 32, 64, 64)) <= 1
    assert tried == [256]


def test_packed_tokens_end_with_the_new_ones_of_each_request() -> None:
    given = Batch((37, 5), (37, 90), 4, 2, 64).arguments(ROWS)
    for whole, new in zip(packed_tokens(given), new_tokens(given), strict=True):
        assert whole.shape[0] == 127
        assert torch.equal(whole[:37], new[:37])
        assert torch.equal(whole[-5:], new[37:])


def test_flydsl_s_work_counts_steps_of_64_keys_over_256_tokens() -> None:
    work = flydsl_kernels.attention_work(PROMPTS, (8, 3, 2)).reshape(2, 3, 8)
    assert work[1, :, 5].tolist() == [4, 8, 10]


@pytest.mark.parametrize("module", [aiter_kernels, fbtriton_kernels, flydsl_kernels])
def test_attention_that_a_package_lacks_is_refused(module: Any) -> None:
    one = Batch((1024,), (1024,), 8, 1, 128)
    assert not module.lacks_in_attention(one)
    for more in ({"window": 20}, {"sinks": True}, {"fp8": True}, {"soft_cap": 50.0}):
        assert module.lacks_in_attention(replace(one, **more))
    assert module.lacks_in_attention(replace(one, head_size=256))


def test_aiter_and_fbtriton_take_prompts_of_one_length() -> None:
    ragged = Batch((512, 1024), (512, 1024), 8, 1, 128)
    chunk = Batch((512,), (1024,), 8, 1, 128)
    assert fbtriton_kernels.lacks_in_attention(ragged)
    assert aiter_kernels.lacks_in_attention(ragged)
    assert aiter_kernels.lacks_in_attention(chunk)
    assert not fbtriton_kernels.lacks_in_attention(chunk)


def test_a_code_object_is_loaded_with_all_its_registers_as_plain_ones() -> None:
    entry = next(each for each in catalogue("gfx950").kernels if "gemm" in each.name)
    elf = entry.path.read_bytes()
    plain = _emulator.CodeObject.load(elf).kernel(entry.symbol)
    made = _emulator.CodeObject.load(aiter_kernels.with_all_registers(elf)).kernel(entry.symbol)
    assert made.vgprs == min(plain.vgprs + plain.agprs, 256)


def test_aiter_s_scales_lie_as_lanes_read_them() -> None:
    """32 rows by 8 scales: four neighbours of a row, 16 rows apart and 4 scales apart in a word."""
    scales = torch.arange(40 * 16).view(40, 16)
    made = aiter_products._shuffled(scales)
    assert made.shape == (2, 16 * 32)
    tiles = made.view(2, 2, 4, 16, 2, 2)
    for row, column in ((0, 0), (17, 3), (31, 12), (39, 15)):
        lane, half = row % 16, row % 32 // 16
        found = tiles[row // 32, column // 8, column % 4, lane, column % 8 // 4, half]
        assert found == scales[row, column]
    assert not made[1].view(2, 4, 16, 2, 2)[:, :, 8:].any()
    assert aiter_products.lacks(Layer("mxfp4", 1, 48, 256))
    assert aiter_products.lacks(Layer("mxfp4", 1, 64, 288))


def test_the_fastest_sample_of_workgroups_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = TritonGpu("gfx950")
    taken: list[list[int]] = []

    def time(kernel: Any, grid: Any, *rest: Any) -> Ran:
        taken.append(list(rest[-1].samples))
        modelled: Any = SimpleNamespace(clocks=1000 * taken[-1][1], clock_ghz=1.0)
        return Ran("kernel", grid, (64,), modelled=modelled)

    monkeypatch.setattr(gpu.gpu, "time", time)

    def run(of: Any) -> torch.Tensor:
        gpu.run(SimpleNamespace(), (20, 1, 1), 64, [], 0)  # type: ignore[arg-type]
        return of.x

    stock = StockLinear(gpu, "stock", ("bf16",), run, apart=(8, 1))
    assert stock.microseconds(Layer("bf16", 16, 64, 64)) == 1
    assert taken == [[0, 8, 16], [0, 1, 2, 3]]


def test_what_a_launch_raises_reaches_the_caller_of_flydsl() -> None:
    fly = flydsl_gpu.FlyGpu(TritonGpu("gfx950"))
    junk = ctypes.create_string_buffer(b"no ELF file" * 8)
    load = fly._functions["mgpuModuleLoad"]
    with pytest.raises(_emulator.LoadError):
        fly.call(lambda: load(ctypes.addressof(junk), len(junk)))
    calls: list[int] = []

    def compiled_first() -> None:
        calls.append(len(calls))
        if len(calls) == 2:
            fly.gpu.launches.append(found())

    fly.call(compiled_first)
    assert calls == [0, 1]


def test_flydsl_without_a_linker_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.setattr(flydsl_gpu, "import_module", lambda name: SimpleNamespace())
    with pytest.raises(flydsl_gpu.NoLinker, match="valid: ROCM_PATH=FOLDER"):
        flydsl_gpu.install("gfx950")


@pytest.mark.package("amd-aiter")
def test_aiter_is_right_on_one_tile_and_races_between_two() -> None:
    root = aiter_kernels.folder()
    assert root is not None
    (attention,) = aiter_kernels.kernels(TritonGpu("gfx950"), root)
    one = replace(attention, checked=lambda batch: Batch((70, 200), (70, 200), 8, 1, 128))
    assert one.error(PROMPTS) <= 1
    with pytest.raises(KernelFinding, match=r"^lds-race"):
        attention.error(PROMPTS)


@pytest.mark.triton
@pytest.mark.package("amd-aiter")
def test_aiter_s_products_are_right_in_each_of_its_default_tiles() -> None:
    root = aiter_kernels.folder()
    assert root is not None
    _, *products = engines._of_aiter("gfx950", root)
    assert [product.name for product in products] == [
        "AITER gemm_afp4wfp4",
        "AITER gemm_afp4wfp4, preshuffled",
    ]
    for product in products:
        for m in (1, 16, 33, 70, 300):
            assert 0 < product.error(Layer("mxfp4", m, 512, 1024)) <= 1


@pytest.mark.package("flydsl")
def test_flydsl_s_attention_and_whole_tiles_are_right() -> None:
    attention, halves, whole = flydsl_kernels.kernels(flydsl_gpu.install("gfx950"))
    assert attention.error(Batch((300, 33), (300, 500), 8, 1, 128)) <= 1
    layer = Layer("bf16", 256, 272, 640)
    assert whole.error(layer) <= 1
    with pytest.raises(KernelFinding, match=r"^lds-race"):
        halves.error(layer)


@pytest.mark.package("fbtriton")
def test_fbtriton_s_kernels_are_right() -> None:
    attention, product = engines._of_fbtriton("gfx950")
    assert attention.error(PROMPTS) <= 1
    assert product.error(Layer("bf16", 256, 256, 64)) <= 1
    assert not math.isnan(product.microseconds(Layer("bf16", 512, 512, 512)))
