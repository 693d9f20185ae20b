"""The instruction sets that the host kernels may use."""

from __future__ import annotations

import os

from hk_backend import machine

TORCH_LIMIT = "ATEN_CPU_CAPABILITY"
"""Environment variable that limits the instruction set of torch's own kernels, and so HK's too."""
ONEDNN_LIMIT = "ONEDNN_MAX_CPU_ISA"
"""Environment variable that limits HK and oneDNN. The latter computes torch's bfloat16 products."""

_AMX = ("amx",)
_BF16 = ("amx", "avx512_bf16")
_AVX512 = (*_BF16, "avx512")
LIMITS = {
    TORCH_LIMIT: {"avx2": _AVX512, "default": (*_AVX512, "avx2")},
    ONEDNN_LIMIT: {
        **dict.fromkeys(("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"), _BF16),
        **dict.fromkeys(("AVX512_CORE", "AVX512_CORE_VNNI"), _BF16),
        **dict.fromkeys(
            ("AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX10_1_512", "AVX10_2_512"), _AMX
        ),
    },
}
"""Instruction sets that each value of a variable rules out.

oneDNN computes only torch's bfloat16 products, so its variable rules out only those of HK.
Source of oneDNN's names: `dnnl_cpu_isa_t` in its include/oneapi/dnnl/dnnl_types.h.
"""


def usable_isas() -> list[str]:
    """Instruction sets, fastest first, that this processor has and no variable rules out.

    Raises:
        ImportError: the extension cannot be loaded.
    """
    from hk_backend import _cpu

    beyond = {isa for name, values in LIMITS.items() for isa in values.get(_value(name), ())}
    return [isa for isa in _cpu.available_isas() if isa not in beyond]


def why_not(isa: str) -> str:
    """Reason why this process cannot use `isa`: the build, a variable that is set, or the machine.

    Empty if it can, or if the processor just lacks the instructions and no more is known.
    """
    from hk_backend import _cpu

    if isa in _cpu.left_out_isas():
        return "HK_ISA_LEVELS=native left it out of this build"
    for name, values in LIMITS.items():
        if isa in values.get(_value(name), ()):
            return f"{name}={os.environ[name]}"
    return _cpu.why_no_amx() if isa == "amx" else ""


def why_not_amx(isa: str) -> str:
    """Reason why HK uses `isa` although the processor advertises AMX; empty if it does not."""
    if isa == "amx" or not machine.advertises_amx():
        return ""
    return why_not("amx") or f"HK_DEVICE=cpu:{isa}"


def left_out() -> str:
    """Sentence that names the instruction sets left out of this build; empty if there are none."""
    from hk_backend import _cpu

    names = ", ".join(f"cpu:{isa}" for isa in _cpu.left_out_isas())
    return f"this build has no kernels for {names} (HK_ISA_LEVELS=native)" if names else ""


def _value(name: str) -> str:
    value = os.environ.get(name, "")
    return value if name == TORCH_LIMIT else value.upper()
