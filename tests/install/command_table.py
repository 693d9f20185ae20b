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
WAYS = (HERE, SHELL, LONG, SERVER, MAKE, GPU, DOCKER, NETWORK, TOO_LONG)

IMAGE = "tests/install/test_image.py"
SCRIPTS = "tests/install/test_two_commands.py"
RUN_OBJECT = "tests/lab/foreign/test_document.py"
SGLANG = "tests/integration/hk_sglang/test_documents.py"
EMULATED_ENGINE = "tests/integration/hk_vllm/rocm/test_emulated_document.py"
PACKAGES = "tests/lab/test_stock_packages.py"
STOCK = "tests/integration/hk_vllm/stock/test_foreign_kernels.py"

TABLE = {
    "./check": SCRIPTS,
    "./demo": SCRIPTS,
    "sudo apt-get update && sudo apt-get install": SCRIPTS,
    "source .venv/bin/activate": SHELL,
    ". .venv-sglang/bin/activate": SGLANG,
    "make ": MAKE,
    "make prove": "tests/proof/test_records.py",
    "make wheel": IMAGE,
    "pip install .": IMAGE,
    "pip install dist/*.whl": IMAGE,
    "pip install '.[llamacpp]'": NETWORK,
    "python add.py": RUN_OBJECT,
    "pip install --no-build-isolation '.[quantize]'": NETWORK,
    "pip install fbtriton": NETWORK,
    "pip install flydsl": NETWORK,
    "pip install --no-deps amd-aiter": NETWORK,
    "mkdir -p rocm/llvm/bin": PACKAGES,
    "ROCM_PATH=$PWD/rocm hk-backend bench gpu": PACKAGES,
    "pip install cibuildwheel": NETWORK,
    "cibuildwheel": DOCKER,
    "docker build": DOCKER,
    "hk-backend bench attention": TOO_LONG,
    "hk-backend bench attention --lengths": LONG,
    "hk-backend bench gpu": STOCK,
    "hk-backend bench linear": LONG,
    "hk-backend doctor": "tests/cli/test_doctor.py",
    "hk-backend kernels gemm_bf16": HERE,
    "hk-backend quantize": LONG,
    "hk-backend run-object add.co": RUN_OBJECT,
    "hk-backend status": HERE,
    "hk-backend time attention_prefill_bf16_d128_packed": LONG,
    "hk-backend time gemm_bf16_256x256": HERE,
    "hk-backend time gemm_bf16_256x256 --shape m=4096,n=4096,k=4096 --measured": GPU,
    "hk-backend time --measure": GPU,
    "hk-backend time --trace": "tests/cli/test_time_trace.py",
    "git clone https://github.com/jhinpan/flydsl-kernel-profiling-lib": NETWORK,
    "hk-backend tune ": LONG,
    "hk-backend tune-kernels": GPU,
    "hk-backend tune-kernels --device emulated:gfx950": TOO_LONG,
    "pytest tests/integration/hk_vllm/e2e/test_singles.py": LONG,
    "python -m pytest": LONG,
    "python -m bench_serving": LONG,
    "python -m bench_serving kernels --isa avx2": TOO_LONG,
    "python -m bench_serving serve --engine sglang": SGLANG,
    "HK_BACKEND=1 python -m vllm.entrypoints.openai.api_server": SERVER,
    "HK_BACKEND=1 HK_DEVICE=emulated:gfx950 VLLM_CPU_KVCACHE_SPACE=1": SERVER,
    "HK_BACKEND=1 HK_EVIDENCE=ignore HK_DEVICE=emulated:gfx950 python serve.py": EMULATED_ENGINE,
    "HK_BACKEND=1 HK_CHECK=1 vllm serve": GPU,
    "HK_BACKEND=1 python -m sglang.launch_server": GPU,
    "python -m sglang.launch_server": GPU,
    "SGLANG_PLATFORM=hk_cpu HK_BACKEND=1": SGLANG,
}
"""Beginnings of commands, and where each runs; the longest beginning that fits counts. A value is
one of `WAYS`, some of which are reasons why none runs it, or the name of the test file."""


def beginning(command: Command) -> str | None:
    """The key of `TABLE` for a command, if there is one."""
    return max((key for key in TABLE if command.text.startswith(key)), key=len, default=None)


def every() -> list[Command]:
    """The commands of all documents, each once."""
    of_all = (each for name in commands.documents() for each in commands.in_document(name))
    return list({command.text: command for command in of_all}.values())


def found(*how: str) -> list[Command]:
    """The commands that the table gives to one of `how`."""
    return [each for each in every() if TABLE.get(beginning(each) or "") in how]
