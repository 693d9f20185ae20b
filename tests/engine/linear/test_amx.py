"""Where torch's own bfloat16 linear is left in place: on a CPU whose AMX it uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hk_backend import machine
from hk_backend.config import get_config
from hk_backend.engine.linear import amx


@pytest.fixture(autouse=True)
def with_amx(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A CPU with AMX, and the environment read again."""
    monkeypatch.setattr(machine, "advertises_amx", lambda: True)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.delenv("HK_DEVICE", raising=False)
    get_config.cache_clear()
    yield
    get_config.cache_clear()


@pytest.mark.parametrize(
    ("limit", "used"),
    [
        (None, True),
        ("", True),
        ("DEFAULT", True),
        ("AVX512_CORE_AMX", True),
        ("avx10_1_512_amx_fp16", True),
        ("AVX512_CORE_FP16", False),
        ("AVX2", False),
    ],
)
def test_the_limit_of_onednn(
    limit: str | None, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit is not None:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert amx.torch_uses_amx() is used


@pytest.mark.parametrize(
    ("flags", "advertised"),
    [("flags : avx512f amx_bf16 amx_tile", True), ("flags : avx512f avx512_bf16", False)],
)
def test_the_processor(
    flags: str, advertised: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    (tmp_path / "cpuinfo").write_text(flags)
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    machine.advertises_amx.cache_clear()
    try:
        assert amx.torch_uses_amx() is advertised
    finally:
        machine.advertises_amx.cache_clear()


def test_what_stays_with_torch() -> None:
    verdict = amx.amx_verdict("bf16", "cpu")
    assert verdict.why == "bfloat16 on a CPU with AMX: torch's own linear is faster"
    for format, device_type in (("fp32", "cpu"), ("fp8_e4m3fn", "cpu"), ("bf16", "cuda")):
        assert amx.amx_verdict(format, device_type)


@pytest.mark.parametrize(("device", "served"), [("auto", False), ("cpu", True), ("cpu:avx2", True)])
def test_a_device_that_is_named(device: str, served: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVICE", device)
    assert bool(amx.amx_verdict("bf16", "cpu")) is served


def test_without_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "advertises_amx", lambda: False)
    assert amx.amx_verdict("bf16", "cpu")
