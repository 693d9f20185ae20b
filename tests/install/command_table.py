"""Who runs each command of the documents, or why nobody does."""

from __future__ import annotations

from tests.install import commands
from tests.install.commands import Command

HERE = "in this process, in make test"
SHELL = "in a shell, in make test"
LONG = "in a shell, in make test-slow"
SERVER = "a server: started until it answers, in make test-slow"
MAKE = "make -n, which reads it and what it leads to: it installs, or is the suite itself"
GPU = "needs a GPU"
DOCKER = "needs Docker"
NETWORK = "installs packages from the network into the reader's environment"
TOO_LONG = "takes more than a quarter of an hour"
REASONS = (GPU, DOCKER, NETWORK, TOO_LONG)

PROVER = "tests/proof/test_prover.py"
IMAGE = "tests/install/test_image.py"
SCRIPTS = "tests/install/test_two_commands.py"
SGLANG = "tests/integration/hk_sglang/test_documents.py"
DOCTOR = "tests/cli/test_doctor.py"

TABLE: dict[str, list[tuple[str, str]]] = {
    "README.md": [
        ("./demo", SCRIPTS),
        ("./check", SCRIPTS),
        ("source .venv/bin/activate", SHELL),
        ("HK_BACKEND=1 python -m vllm.entrypoints.openai.api_server", SERVER),
        ("pip install .", IMAGE),
        ("hk-backend doctor", DOCTOR),
        ("hk-backend status", HERE),
        ("hk-backend kernels gemm_bf16", HERE),
        ("hk-backend time gemm_bf16_256x256", HERE),
    ],
    "AGENTS.md": [
        ("make environments", MAKE),
        ("make quick", MAKE),
        ("make test PYTEST_ARGS=", MAKE),
        ("make venv", MAKE),
        ("make kernels", MAKE),
        ("make format lint", MAKE),
        ("make prove", PROVER),
        ("make test", MAKE),
    ],
    "CONTRIBUTING.md": [
        ("sudo apt-get update && sudo apt-get install", SCRIPTS),
        ("make environments", MAKE),
        ("make quick", MAKE),
        ("make test PYTEST_ARGS=", MAKE),
        ("make format", MAKE),
        ("make lint", MAKE),
        ("make prove", PROVER),
        ("make test", MAKE),
    ],
    "docs/benchmarks.md": [
        ("hk-backend bench attention", TOO_LONG),
        ("hk-backend bench attention --isa avx2", LONG),
        ("hk-backend bench attention --lengths 1,25,200", LONG),
        ("hk-backend bench linear --isa avx2", LONG),
        ("hk-backend bench linear --device emulated:gfx950", LONG),
        ("python -m bench_serving kernels --isa avx2", TOO_LONG),
        ("python -m bench_serving kernels --modelled", LONG),
        ("python -m bench_serving serve --model", LONG),
        ("python -m bench_serving serve --engine sglang", SGLANG),
        ("pip install '.[llamacpp]'", NETWORK),
        ("python -m bench_serving serve --model", LONG),
        ("python -m bench_serving.llamacpp.convert", LONG),
        ("python -m bench_serving serve --model", LONG),
    ],
    "docs/cpu-kernels.md": [
        ("python -m pytest -p tests.cpu.emulated_isa --emulated-isa=avx512", LONG),
        ("python -m pytest -p tests.cpu.emulated_isa --emulated-isa=amx", LONG),
        ("python -m pytest tests/ops/test_linear_bf16.py", LONG),
    ],
    "docs/environment.md": [
        ("HK_BACKEND=1 HK_DEVICE=emulated:gfx950 VLLM_CPU_KVCACHE_SPACE=1", SERVER),
        ("HK_DEVICE=emulated:gfx950 python -c", SHELL),
    ],
    "docs/install.md": [
        ("docker build -t vllm-hk .", DOCKER),
        ("docker build --build-arg", DOCKER),
        ("make wheel", IMAGE),
        ("pip install dist/*.whl", IMAGE),
        ("hk-backend doctor", DOCTOR),
        ("pip install cibuildwheel", NETWORK),
        ("cibuildwheel", DOCKER),
        ("hk-backend status", HERE),
        ("HK_BACKEND=1 HK_CHECK=1 vllm serve", GPU),
    ],
    "docs/quantize.md": [
        ("pip install --no-build-isolation '.[quantize]'", NETWORK),
        ("hk-backend quantize", LONG),
        ("HK_BACKEND=1 python -m vllm.entrypoints.openai.api_server", SERVER),
        ("python -m bench_serving perplexity", LONG),
        ("python -m bench_serving serve", LONG),
    ],
    "docs/sglang.md": [
        ("HK_BACKEND=1 python -m sglang.launch_server", GPU),
        ("python -m sglang.launch_server", GPU),
        ("pip install .", IMAGE),
        ("hk-backend doctor", DOCTOR),
        ("make demo-sglang", MAKE),
        ("make venv-sglang", MAKE),
        (". .venv-sglang/bin/activate", SGLANG),
        ("SGLANG_PLATFORM=hk_cpu HK_BACKEND=1", SGLANG),
    ],
    "docs/testing.md": [
        ("make test PYTEST_ARGS=", MAKE),
        ("make test-units", MAKE),
        ("make test-sglang PYTEST_ARGS=", MAKE),
        ("make prove --dry-run", PROVER),
        ("make prove", PROVER),
        ("make prove ONLY=attention_window", PROVER),
        ("make prove FRESH=1", PROVER),
        ("make prove ONLY=engine_", PROVER),
        ("pytest tests/integration/hk_vllm/e2e/test_singles.py", LONG),
        ("make mutants", MAKE),
        ("make mutants ONLY=routing", MAKE),
        ("make mutants SLOW=1", MAKE),
    ],
    "docs/tile-language.md": [("python -m pytest tests/tiles", LONG)],
    "docs/timing.md": [
        ("hk-backend time attention_prefill_bf16_d128_packed", LONG),
        ("hk-backend time --measure measured.json", GPU),
        ("hk-backend time gemm_bf16_256x256", GPU),
    ],
    "docs/tuning.md": [
        ("hk-backend tune models/", LONG),
        ("hk-backend tune --seconds 120", LONG),
        ("hk-backend tune-kernels", GPU),
        ("hk-backend tune-kernels --shapes", GPU),
        ("hk-backend tune-kernels --device emulated:gfx950", TOO_LONG),
    ],
}
"""For each document: how each of its commands begins, in its order, and where the command runs.

A command runs in one of the places above or in the test file that is named, or a reason says why
none runs it.
"""


def found(*how: str) -> list[Command]:
    """The commands that the table gives to one of `how`, each once."""
    wanted = {
        command.text: command
        for document, rows in TABLE.items()
        for command, (_, where) in zip(commands.in_document(document), rows, strict=False)
        if where in how
    }
    return list(wanted.values())
