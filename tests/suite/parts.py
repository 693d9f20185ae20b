"""The parts of the suite, and those of each way of running it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.proof import plugin

VLLM = ("tests/integration/hk_vllm/e2e",)
ROCM = ("tests/integration/hk_vllm/rocm", "tests/bench_serving")
STOCK = ("tests/integration/hk_vllm/stock",)
SGLANG = ("tests/integration/hk_sglang",)
BOTH = "tests/integration/engines"
"""Tests of either engine's plugin, which run in the environment of each: in `units` with vLLM."""


@dataclass(frozen=True)
class Part:
    """Tests that one pytest runs.

    `arguments`: pytest's. `engine`: the part starts engines, which use every core themselves but
    leave some idle while they load; so two such parts run at a time. The tests of any other part
    take a core each, and pytest-xdist runs as many as there are cores. `sglang`: it needs SGLang's
    environment, not vLLM's.
    """

    name: str
    arguments: tuple[str, ...]
    engine: bool = True
    sglang: bool = False
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, python: str) -> list[str]:
        """The shell's words that run it, in the environment of `python`."""
        spread = () if self.engine else ("-n", "auto", "--dist", "worksteal")
        return [python, "-m", "pytest", "--durations=15", *spread, *self.arguments]

    def only(self, *arguments: str) -> Part:
        """The part with these arguments on top."""
        return replace(self, arguments=(*self.arguments, *arguments))


NOT_SLOW = "not slow"
"""The argument of pytest's -m in `make test`."""
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}  # threads that wait give their core to the other part
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
ELSEWHERE = tuple(f"--ignore={path}" for path in VLLM + ROCM + STOCK + SGLANG)

RECORDED = {plugin.VARIABLE: plugin.RECORDS}  # proofs have run: their records count
UNITS_PART = Part(
    "units", ("tests", *ELSEWHERE), engine=False, environment={**ONE_THREAD, **RECORDED}
)
VLLM_PART = Part("vllm", VLLM, environment={**PASSIVE, **RECORDED})
SGLANG_PART = Part("sglang", (*SGLANG, BOTH), sglang=True, environment={**PASSIVE, **RECORDED})
ROCM_PART = Part("rocm", (*ROCM, *STOCK), environment={**PASSIVE, **RECORDED})
ALL = (UNITS_PART, VLLM_PART, SGLANG_PART, ROCM_PART)

HELD = (
    replace(
        UNITS_PART,
        arguments=("tests/ops", "tests/cpu", "tests/integration/hk_vllm/test_linear_kernels.py"),
    ),
    replace(VLLM_PART, environment=PASSIVE).only("-m", "held"),
    replace(SGLANG_PART, environment=PASSIVE).only("-m", "held"),
)
"""Tests that run again where the processor has more than AVX2. They are the host kernels' tests,
those of a stock kernel that depends on the processor, and one for each route of each engine, which
the marker `held` names. Records of engines do not count here: another level may have made them."""

QUICK = Part(
    "quick",
    (
        *("tests/test_config.py", "tests/terms", "tests/routing", "tests/engine"),
        "tests/ops/test_supports.py",
        *("tests/ops/test_attention_errors.py", "tests/ops/test_linear_errors.py"),
        *("tests/ops/test_attention_shapes.py", "tests/ops/test_attention_masks.py"),
        *("tests/ops/test_merge.py", "tests/ops/test_look_up.py"),
        *("tests/devices/hip/test_attention.py", "tests/devices/hip/test_emulated.py"),
        *("tests/kernels/test_catalogue.py", "tests/kernels/test_arguments.py"),
        *("tests/kernels/test_workgroups.py", "tests/emulator/test_code_object.py"),
        *("tests/quantize/test_refusals.py", "tests/cli/test_status.py"),
        *("tests/cli/test_doctor.py", "tests/cli/test_kernels.py"),
    ),
    engine=False,
    environment=ONE_THREAD,
)
"""The files of each room that say most for their time, chosen by hand. They take 40 seconds of one
core in all; none compiles a kernel or starts an engine."""
