"""`make test ISA=avx2`: the hold reaches HK's kernels, torch, oneDNN, and an engine's process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from bench_serving.isa import AVX512
from hk_backend import _cpu, machine
from hk_backend.bench.isa import ISA_LIMITS
from hk_backend.devices.base import DeviceError
from hk_backend.devices.cpu.device import cpu_device
from hk_backend.devices.cpu.isas import usable_isas, why_not_amx
from tests.integration.shared.e2e.engine import clean_environment
from tests.integration.shared.e2e.inside import hide_instructions
from tests.models import ROOT
from tests.suite.held import held_to, limits, problem

LEVELS = ["amx", "avx512_bf16", "avx512", "avx2", "portable"]
"""What a processor with AMX has, from fast to slow."""
NO_LEAVE = "the kernel does not permit AMX tiles (arch_prctl: Operation not permitted)"

SHOWS = """
import torch
from hk_backend.devices import device_for
print(device_for("cpu").name, torch.backends.cpu.get_cpu_capability(), flush=True)
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


def test_each_instruction_set_has_a_folder_of_compiled_code() -> None:
    """torch's key of a compiled graph leaves the instruction set out."""
    folders = {limits(isa).get("TORCHINDUCTOR_CACHE_DIR") for isa in (None, *ISA_LIMITS)}
    assert len(folders) == 1 + len(ISA_LIMITS)


@pytest.mark.slow
def test_each_instruction_set_compiles_code_of_its_own() -> None:
    """Native first: where a processor has more, what it compiles must not be what the hold runs."""
    native = {name: value for name, value in os.environ.items() if name not in limits("avx2")}
    for environment in (native, os.environ | limits("avx2")):
        done = subprocess.run([sys.executable, "-c", COMPILES], env=environment, check=False)
        assert done.returncode == 0


def test_an_engine_s_process_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What engines start with is cleaned of all that would steer them, but not of the hold."""
    hold(monkeypatch)
    native = clean_environment()
    hold(monkeypatch, **limits("avx2"))
    held = clean_environment()
    assert {name: held[name] for name in limits("avx2")} == limits("avx2")
    assert native["ONEDNN_MAX_CPU_ISA"] != held["ONEDNN_MAX_CPU_ISA"]
    assert "HK_DEVICE" not in held


@pytest.mark.parametrize("isa", [*ISA_LIMITS, None])
def test_a_process_knows_what_it_is_held_to(
    monkeypatch: pytest.MonkeyPatch, isa: str | None
) -> None:
    hold(monkeypatch, **limits(isa))
    assert held_to() == isa


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
def test_an_engine_finds_no_more_in_the_processor(
    monkeypatch: pytest.MonkeyPatch, isa: str | None, hidden: set[str]
) -> None:
    for name in AVX512:
        monkeypatch.setattr(torch.cpu, name, lambda: True)
    hold(monkeypatch, **limits(isa))
    monkeypatch.delenv("TEST_HIDE_AMX", raising=False)
    hide_instructions()
    assert {name for name in AVX512 if not getattr(torch.cpu, name)()} == {
        f"_is_{name}_supported" for name in hidden
    }


def hold(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    """Hold this process by these variables alone; it may be held itself."""
    for name in limits("amx"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


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
    """oneDNN's limit is about products in bfloat16, and reaches HK's own of them."""
    monkeypatch.setattr(_cpu, "available_isas", lambda: LEVELS)
    hold(monkeypatch, **{variable: value})
    assert usable_isas() == LEVELS[LEVELS.index(fastest) :]


@pytest.mark.parametrize("isa", ISA_LIMITS)
def test_a_hold_leads_hk_to_its_level(monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    monkeypatch.setattr(_cpu, "available_isas", lambda: LEVELS)
    hold(monkeypatch, **limits(isa))
    assert usable_isas()[0] == isa


@pytest.mark.parametrize(
    ("isa", "variable", "value"),
    [
        ("avx512", "ATEN_CPU_CAPABILITY", "avx2"),
        ("amx", "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16"),
        ("avx512_bf16", "ONEDNN_MAX_CPU_ISA", "AVX512_CORE"),
    ],
)
def test_a_device_beyond_the_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch, isa: str, variable: str, value: str
) -> None:
    monkeypatch.setattr(_cpu, "available_isas", lambda: LEVELS)
    hold(monkeypatch, **{variable: value})
    cpu_device.cache_clear()
    with pytest.raises(DeviceError, match=rf"cpu:{isa} .*\({variable}={value}\).*cpu:avx2"):
        cpu_device(isa)


def test_amx_without_the_kernel_s_leave_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cpu, "available_isas", lambda: LEVELS[1:])
    monkeypatch.setattr(_cpu, "why_no_amx", lambda: NO_LEAVE)
    hold(monkeypatch)
    cpu_device.cache_clear()
    with pytest.raises(DeviceError) as refusal:
        cpu_device("amx")
    assert str(refusal.value) == (
        f"HK_DEVICE=cpu:amx cannot run on this machine ({NO_LEAVE}): expected one of "
        "cpu:avx512_bf16, cpu:avx512, cpu:avx2, cpu:portable"
    )


def test_a_device_that_the_build_left_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cpu, "available_isas", lambda: LEVELS[2:])
    monkeypatch.setattr(_cpu, "left_out_isas", lambda: LEVELS[:2])
    hold(monkeypatch)
    cpu_device.cache_clear()
    with pytest.raises(DeviceError) as refusal:
        cpu_device("avx512_bf16")
    assert str(refusal.value) == (
        "HK_DEVICE=cpu:avx512_bf16 cannot run on this machine (HK_ISA_LEVELS=native left it out of "
        "this build): expected one of cpu:avx512, cpu:avx2, cpu:portable"
    )


@pytest.mark.parametrize(
    ("advertised", "isa", "environment", "refusal", "why"),
    [
        (True, "avx512_bf16", {}, NO_LEAVE, NO_LEAVE),
        (
            True,
            "avx512_bf16",
            {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
            "",
            "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16",
        ),
        (True, "avx2", {}, "", "HK_DEVICE=cpu:avx2"),
        (True, "amx", {}, "", ""),
        (False, "avx512_bf16", {}, "this processor has no AMX for bfloat16", ""),
    ],
)
def test_why_advertised_amx_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
    advertised: bool,
    isa: str,
    environment: dict[str, str],
    refusal: str,
    why: str,
) -> None:
    hold(monkeypatch, **environment)
    monkeypatch.setattr(machine, "advertises_amx", lambda: advertised)
    monkeypatch.setattr(_cpu, "why_no_amx", lambda: refusal)
    assert why_not_amx(isa) == why


def test_a_processor_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cpu, "available_isas", lambda: ["avx2", "portable"])
    for name in limits("avx2"):  # this run may be held itself
        monkeypatch.delenv(name, raising=False)
    assert problem(None) == problem("avx2") == ""
    assert problem("avx512") == "ISA=avx512 is not valid: this processor has avx2, portable"
    monkeypatch.setattr(_cpu, "why_no_amx", lambda: NO_LEAVE)
    said = f"ISA=amx is not valid: this processor has avx2, portable ({NO_LEAVE})"
    assert problem("amx") == said
