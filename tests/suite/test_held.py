"""`make test ISA=avx2`: the hold reaches HK's kernels, torch, oneDNN, and an engine's process."""

from __future__ import annotations

import os

import pytest
import torch

from bench_serving.isa import AVX512
from hk_backend import _cpu, machine
from hk_backend.devices.base import DeviceError
from hk_backend.devices.cpu.device import cpu_device
from hk_backend.devices.cpu.isas import usable_isas, why_not_amx
from hk_backend.lab.bench.isa import ISA_LIMITS
from tests.integration.shared.e2e.inside import hide_instructions
from tests.models import ROOT
from tests.processes import python
from tests.suite.held import held_to, limits, problem

LEVELS = ["amx", "avx512_bf16", "avx512", "avx2", "portable"]
"""Levels of a processor with AMX, from fast to slow."""
NO_LEAVE = "the kernel does not permit AMX tiles (arch_prctl: Operation not permitted)"

SHOWS = """
import torch
from hk_backend.devices import device_for
print(device_for("cpu").name, torch.backends.cpu.get_cpu_capability(), flush=True)
torch.relu(torch.ones(64, 64).to_mkldnn())
"""


def test_kernels_torch_and_onednn_are_held() -> None:
    """Each library reads its variable, whatever the processor has."""
    below = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    env = os.environ | limits("avx2") | {"ONEDNN_VERBOSE": "1"} | below
    done = python("-c", SHOWS, env=env, cwd=ROOT, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "cpu:portable DEFAULT"
    assert "onednn_verbose,v1,info,cpu,isa:Intel SSE4.1" in lines


def hold(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    """Hold this process by these variables alone; it may be held itself."""
    for name in limits("amx"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    cpu_device.cache_clear()


@pytest.mark.parametrize(
    ("isa", "hidden"),
    [
        ("avx2", {"avx512", "vnni", "avx512_bf16", "amx_tile", "amx_fp16"}),
        ("avx512", {"avx512_bf16", "amx_tile", "amx_fp16"}),
        ("avx512_bf16", {"amx_tile", "amx_fp16"}),
        ("amx", {"amx_fp16"}),
        (None, set()),
    ],
)
def test_each_hold(monkeypatch: pytest.MonkeyPatch, isa: str | None, hidden: set[str]) -> None:
    """A process knows its hold, HK uses no more than that, and engines find no more in the
    processor. torch's key of a compiled graph leaves the hold out, so each has a folder of its own.
    """
    for name in AVX512:
        monkeypatch.setattr(torch.cpu, name, lambda: True)
    monkeypatch.setattr(_cpu, "available_isas", lambda: LEVELS)
    monkeypatch.delenv("TEST_HIDE_AMX", raising=False)
    hold(monkeypatch, **limits(isa))
    assert held_to() == isa
    assert usable_isas()[0] == (isa or "amx")
    hide_instructions()
    assert {name for name in AVX512 if not getattr(torch.cpu, name)()} == {
        f"_is_{name}_supported" for name in hidden
    }
    others = {limits(other).get("TORCHINDUCTOR_CACHE_DIR") for other in ISA_LIMITS if other != isa}
    assert limits(isa).get("TORCHINDUCTOR_CACHE_DIR") not in others


@pytest.mark.parametrize(
    ("variable", "value", "fastest"),
    [
        ("ATEN_CPU_CAPABILITY", "", "amx"),
        ("ATEN_CPU_CAPABILITY", "avx512", "amx"),
        ("ATEN_CPU_CAPABILITY", "avx2", "avx2"),
        ("ATEN_CPU_CAPABILITY", "default", "portable"),
        ("ONEDNN_MAX_CPU_ISA", "ALL", "amx"),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_AMX", "amx"),
        ("ONEDNN_MAX_CPU_ISA", "avx10_1_512_amx_fp16", "amx"),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", "avx512_bf16"),
        ("ONEDNN_MAX_CPU_ISA", "avx512_core_bf16", "avx512_bf16"),
        ("ONEDNN_MAX_CPU_ISA", "AVX10_2_512", "avx512_bf16"),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI", "avx512"),
        ("ONEDNN_MAX_CPU_ISA", "AVX2", "avx512"),
    ],
)
def test_what_a_larger_processor_may_use(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, fastest: str
) -> None:
    """oneDNN's limit is about products in bfloat16, and reaches HK's own of them. A device beyond
    the limit is refused."""
    monkeypatch.setattr(_cpu, "available_isas", lambda: LEVELS)
    hold(monkeypatch, **{variable: value})
    place = LEVELS.index(fastest)
    assert usable_isas() == LEVELS[place:]
    if place:
        beyond = LEVELS[place - 1]
        with pytest.raises(DeviceError, match=rf"cpu:{beyond} .*\({variable}={value}\).*cpu:"):
            cpu_device(beyond)


def test_levels_that_the_kernel_or_the_build_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device of such a level is refused with the reason, as is a hold."""
    hold(monkeypatch)
    monkeypatch.setattr(_cpu, "available_isas", lambda: LEVELS[2:])
    monkeypatch.setattr(_cpu, "why_no_amx", lambda: NO_LEAVE)
    valid = "expected one of cpu:avx512, cpu:avx2, cpu:portable"
    with pytest.raises(DeviceError) as refusal:
        cpu_device("amx")
    cannot = "HK_DEVICE=cpu:{} cannot run on this machine ({}): " + valid
    assert str(refusal.value) == cannot.format("amx", NO_LEAVE)
    assert problem(None) == problem("avx2") == ""
    said = "ISA={} is not valid: this processor has avx512, avx2, portable"
    assert problem("avx512_bf16") == said.format("avx512_bf16")
    assert problem("amx") == f"{said.format('amx')} ({NO_LEAVE})"
    monkeypatch.setattr(_cpu, "left_out_isas", lambda: LEVELS[:2])
    with pytest.raises(DeviceError) as refusal:
        cpu_device("avx512_bf16")
    why = "HK_ISA_LEVELS=native left it out of this build"
    assert str(refusal.value) == cannot.format("avx512_bf16", why)


@pytest.mark.parametrize(
    ("advertised", "isa", "limit", "refusal", "why"),
    [
        (True, "avx512_bf16", "", NO_LEAVE, NO_LEAVE),
        (True, "avx512_bf16", "AVX512_CORE_BF16", "", "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"),
        (True, "avx2", "", "", "HK_DEVICE=cpu:avx2"),
        (True, "amx", "", "", ""),
        (False, "avx512_bf16", "", "this processor has no AMX for bfloat16", ""),
    ],
)
def test_why_advertised_amx_is_not_used(
    monkeypatch: pytest.MonkeyPatch, advertised: bool, isa: str, limit: str, refusal: str, why: str
) -> None:
    hold(monkeypatch, **({"ONEDNN_MAX_CPU_ISA": limit} if limit else {}))
    monkeypatch.setattr(machine, "advertises_amx", lambda: advertised)
    monkeypatch.setattr(_cpu, "why_no_amx", lambda: refusal)
    assert why_not_amx(isa) == why
