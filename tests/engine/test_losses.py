"""Where an engine keeps its own kernels because they are faster: on which machine, and unless."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hk_backend import machine
from hk_backend.config import get_config
from hk_backend.engine import losses as evidence
from hk_backend.engine.losses import LOSSES, losses, verdict, why_not_step

BENCHMARKS = Path(__file__).parents[2] / "docs" / "benchmarks.md"
BF16, FP32 = torch.bfloat16, torch.float32


@pytest.fixture(autouse=True)
def as_by_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ONEDNN_MAX_CPU_ISA", "HK_DEVICE", "HK_EVIDENCE"):
        monkeypatch.delenv(name, raising=False)
    get_config.cache_clear()
    yield
    get_config.cache_clear()


@pytest.fixture
def machine_with(monkeypatch: pytest.MonkeyPatch) -> object:
    """This machine as if its processor had no more and no less than an instruction set."""

    def pretend(isa: str) -> None:
        monkeypatch.setattr(evidence, "host_isa", lambda operator: isa)

    return pretend


LEFT = {
    # operator, dtype, engine, isa: left to the engine, whatever the number of tokens
    ("attention", BF16, "vLLM", "amx"): True,
    ("attention", BF16, "SGLang", "amx"): True,
    ("attention", BF16, "vLLM", "avx512"): False,
    ("attention", FP32, "vLLM", "amx"): False,
    ("attention", FP32, "vLLM", "avx512"): False,
    ("attention", torch.float16, "vLLM", "amx"): False,
    ("linear", BF16, "vLLM", "amx"): True,
    ("linear", BF16, "SGLang", "amx"): True,
    ("linear", BF16, "SGLang", "avx512"): False,
    ("linear", FP32, "vLLM", "avx512"): True,
    ("linear", FP32, "vLLM", "amx"): True,
    ("linear", FP32, "vLLM", "avx2"): False,
    ("linear", FP32, "SGLang", "avx2"): True,
    ("linear", FP32, "SGLang", "avx512"): True,
    ("linear", FP32, "SGLang", "portable"): False,
    ("linear", torch.float8_e4m3fn, "vLLM", "amx"): False,
    ("linear", torch.uint8, "SGLang", "amx"): False,
}


@pytest.mark.parametrize(("operator", "dtype", "engine", "isa"), LEFT)
def test_which_layers_are_left(
    operator: str, dtype: torch.dtype, engine: str, isa: str, machine_with
) -> None:
    machine_with(isa)
    left = LEFT[operator, dtype, engine, isa]
    found = verdict(operator, dtype, "cpu", engine)
    assert bool(found) is not left
    assert found.why.startswith("faster without HK: " if left else "")
    assert verdict(operator, dtype, "cuda", engine), "nothing was measured on a GPU"


@pytest.mark.parametrize(
    ("environment", "left"),
    [
        ({}, True),
        ({"HK_DEVICE": "auto"}, True),
        ({"HK_EVIDENCE": "measure"}, True),
        ({"HK_EVIDENCE": "ignore"}, False),
        ({"HK_DEVICE": "cpu"}, False),
        ({"HK_DEVICE": "cpu:avx2"}, False),
        ({"HK_DEVICE": "emulated:gfx950"}, False),
    ],
)
def test_what_the_user_decides(
    environment: dict[str, str], left: bool, machine_with, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine_with("amx")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert bool(verdict("attention", BF16, "cpu", "vLLM")) is not left
    short = why_not_step(losses("attention", FP32, "cpu", "vLLM"), 32)
    assert bool(short) is left


@pytest.mark.parametrize(("isa", "limit"), [("avx512", 128), ("amx", 128), ("avx2", 0)])
def test_short_steps(isa: str, limit: int, machine_with) -> None:
    machine_with(isa)
    found = losses("attention", FP32, "cpu", "vLLM")
    lengths = (2, 32, 127, 128, 4096)
    assert [length for length in lengths if why_not_step(found, length)] == [
        length for length in lengths if length < limit
    ]


def test_every_loss_is_in_the_benchmarks() -> None:
    """The heading exists, and the figures of the reason stand under it."""
    sections = re.split(r"^#{2,3} ", BENCHMARKS.read_text(), flags=re.MULTILINE)
    under = {section.partition("\n")[0]: section for section in sections}
    for loss in LOSSES:
        for figure in re.findall(r"\d+\.\d+", loss.why):
            assert figure in under[loss.source], (loss.why, figure)
        assert loss.source in under


@pytest.mark.parametrize(
    ("limit", "used"),
    [
        (None, True),
        ("", True),
        ("DEFAULT", True),
        ("ALL", True),
        ("all", True),
        ("AVX512_CORE_AMX", True),
        ("avx10_1_512_amx_fp16", True),
        ("AVX512_CORE_FP16", False),
        ("AVX2", False),
    ],
)
def test_the_limit_of_onednn(
    limit: str | None, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It binds linear layers; vLLM's attention asks the processor."""
    monkeypatch.setattr(machine, "advertises_amx", lambda: True)
    if limit is not None:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert evidence.torch_uses_amx() is used
    assert (evidence.host_isa("linear") == "amx") is used
    assert evidence.host_isa("attention") == "amx"


@pytest.mark.parametrize(
    ("flags", "advertised"),
    [("flags : avx512f amx_bf16 amx_tile", True), ("flags : avx512f avx512_bf16", False)],
)
def test_the_processor(
    flags: str, advertised: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(flags)
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    machine.advertises_amx.cache_clear()
    try:
        assert evidence.torch_uses_amx() is advertised
    finally:
        machine.advertises_amx.cache_clear()


def test_without_amx_it_is_what_hk_computes_with(monkeypatch: pytest.MonkeyPatch) -> None:
    from hk_backend.devices import device_for

    monkeypatch.setattr(machine, "advertises_amx", lambda: False)
    assert evidence.host_isa("attention") in evidence.LEVELS
    assert device_for("cpu").name == f"cpu:{evidence.host_isa('attention')}"
