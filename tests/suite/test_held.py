"""`make test ISA=avx2`: the hold reaches HK's kernels, torch, oneDNN, and an engine's process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from bench_serving.isa import AMX, AVX512, BEYOND
from hk_backend import _cpu
from hk_backend.devices.base import DeviceError
from hk_backend.devices.cpu.device import cpu_device
from hk_backend.devices.cpu.isas import usable_isas
from tests.integration.shared.e2e.engine import clean_environment
from tests.integration.shared.e2e.inside import hide_instructions
from tests.models import ROOT
from tests.suite.held import limits, problem

SHOWS = """
import torch
from hk_backend.devices import device_for
print(device_for("cpu").name, torch.backends.cpu.get_cpu_capability())
torch.relu(torch.ones(64, 64).to_mkldnn())
"""


def shown(**environment: str) -> list[str]:
    """The lines of a process held to AVX2, with `environment` on top."""
    done = subprocess.run(
        [sys.executable, "-c", SHOWS],
        env=os.environ | limits("avx2") | {"ONEDNN_VERBOSE": "1"} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_kernels_torch_and_onednn_are_held() -> None:
    lines = shown()
    assert lines[0] == "cpu:avx2 AVX2"
    assert "onednn_verbose,v1,info,cpu,isa:Intel AVX2" in lines


def test_each_of_them_reads_its_variable() -> None:
    """Shown also where the processor has no more than AVX2: these hold to less."""
    lines = shown(ATEN_CPU_CAPABILITY="default", ONEDNN_MAX_CPU_ISA="SSE41")
    assert lines[0] == "cpu:portable DEFAULT"
    assert "onednn_verbose,v1,info,cpu,isa:Intel SSE4.1" in lines


COMPILES = """
import torch
@torch.compile(dynamic=True)
def shard(token, first, last):
    mine = (token >= first) & (token < last)
    return mine * (token - first * mine)
token = torch.arange(37)
assert torch.equal(shard(token, 8, 24), torch.where((token >= 8) & (token < 24), token - 8, 0))
"""
"""As SGLang's embedding finds its share of the tokens; wrong if one instruction set runs what was
compiled for another."""


def test_each_instruction_set_has_compiled_code_of_its_own() -> None:
    """torch's key of a compiled graph leaves the instruction set out. Native first: where a
    processor has more, what it compiles must not be what the hold runs."""
    native = {name: value for name, value in os.environ.items() if name not in limits("avx2")}
    for environment in (native, os.environ | limits("avx2")):
        done = subprocess.run([sys.executable, "-c", COMPILES], env=environment, check=False)
        assert done.returncode == 0
    folders = {limits(isa).get("TORCHINDUCTOR_CACHE_DIR") for isa in (None, "avx2", "avx512")}
    assert len(folders) == 3


def test_an_engine_s_process_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What engines start with is cleaned of all that would steer them, but not of the hold."""
    for name in limits("avx2"):  # this run may be held itself
        monkeypatch.delenv(name, raising=False)
    native = clean_environment()
    for name, value in limits("avx2").items():
        monkeypatch.setenv(name, value)
    held = clean_environment()
    assert {name: held[name] for name in limits("avx2")} == limits("avx2")
    assert native["ONEDNN_MAX_CPU_ISA"] != held["ONEDNN_MAX_CPU_ISA"]
    assert "HK_DEVICE" not in held


@pytest.mark.parametrize("isa", ["avx2", "avx512", ""])
def test_an_engine_finds_no_more_in_the_processor(
    monkeypatch: pytest.MonkeyPatch, isa: str
) -> None:
    names = {*AVX512, *AMX}
    for name in names:
        monkeypatch.setattr(torch.cpu, name, lambda: True)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", isa)
    monkeypatch.delenv("TEST_HIDE_AMX", raising=False)
    hide_instructions()
    assert {name for name in names if not getattr(torch.cpu, name)()} == set(BEYOND.get(isa, ()))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("", ["avx512", "avx2", "portable"]),
        ("avx512", ["avx512", "avx2", "portable"]),
        ("avx2", ["avx2", "portable"]),
        ("default", ["portable"]),
    ],
)
def test_what_a_larger_processor_may_use(
    monkeypatch: pytest.MonkeyPatch, limit: str, expected: list[str]
) -> None:
    monkeypatch.setattr(_cpu, "available_isas", lambda: ["avx512", "avx2", "portable"])
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", limit)
    assert usable_isas() == expected


def test_a_device_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cpu, "available_isas", lambda: ["avx512", "avx2", "portable"])
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    cpu_device.cache_clear()
    with pytest.raises(DeviceError, match=r"cpu:avx512.*ATEN_CPU_CAPABILITY=avx2.*cpu:avx2"):
        cpu_device("avx512")


def test_a_processor_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cpu, "available_isas", lambda: ["avx2", "portable"])
    assert problem(None) == problem("avx2") == ""
    assert problem("avx512") == "ISA=avx512 is not valid: this processor has avx2, portable"
