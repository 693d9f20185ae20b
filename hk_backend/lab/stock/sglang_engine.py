"""A whole SGLang engine on an emulated GPU: its Triton kernels are the code that an MI355X runs.

    gpu = sglang_engine.install("gfx950")  # before SGLang is imported
    engine = sglang.Engine(
        model_path="model", dtype="bfloat16", device="cpu", attention_backend="triton"
    )
    engine.generate("Hello")
    sglang_engine.launches(engine)  # how often each kernel ran that is not HK's

The engine runs on a platform for CPUs without SGLang's kernel package, with tensors in the CPU's
memory: SGLANG_PLATFORM=hk_cpu (bench_serving/sglang_cpu_platform). SGLang's own Triton kernels are
prefill and decode attention, numbers of splits, indices of keys, positions, allocation of pages,
and writes to the table of tokens. Norms, activations and rotary embeddings are Inductor's, since
the environment variable SGLANG_FORCE_FUSED_OP_BACKEND=torch_compile is set. On ROCm SGLang has them
from AITER or its kernel package. HK serves prefill attention and linear layers, if the environment
asks for it (HK_BACKEND=1, HK_DEVICE=emulated:gfx950) and the engine has
`prefill_attention_backend="hk"`.

Linear layers without HK, writes to the KV cache and sampling are torch's on the CPU.
`enable_torch_compile` changes nothing, since such a platform captures no graphs.

Schedulers are forked from the process that has called `install`, where SGLang would spawn them.
They inherit the GPU; in that process itself `gpu.launches` stays empty. A finding ends the engine.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock import emulated_gpu, sglang_attention

BACKEND = "sglang.srt.layers.attention.triton_backend"
ENGINE = ("sglang.srt.entrypoints.engine", "sglang.srt.model_executor.model_runner")
"""Modules that import all of an engine but its attention backends."""
ENVIRONMENT = {"SGLANG_FORCE_FUSED_OP_BACKEND": "torch_compile"}
"""Variables that `install` sets, unless they are set."""
COMPILED_AT_MOST = 1024
"""Number of versions of one function that torch.compile keeps, which SGLang's graphs set, too."""
WRITE_DOWN = "write_down_launches"
"""Name of the method that `install` adds to SGLang's scheduler."""


def install(arch: str = "gfx950") -> TritonGpu:
    """Make the SGLang engines that this process starts run on an emulated GPU.

    Raises:
        ModuleNotFoundError: Triton or SGLang is not installed.
        RuntimeError: SGLang has been imported already.
        ValueError: no such arch.
    """
    gpu = emulated_gpu.install_before("sglang", arch)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    torch._dynamo.config.recompile_limit = COMPILED_AT_MOST
    torch._dynamo.config.accumulated_recompile_limit = COMPILED_AT_MOST
    for module in ENGINE:
        import_module(module)
    sglang_attention.import_kernels(arch, [BACKEND])
    _launch_triton()
    _let_it_draft()
    _fork_schedulers()
    _count_launches(gpu)
    return gpu


def launches(engine: Any) -> Counter[str]:
    """Number of launches of each kernel that is not HK's, by all schedulers of `engine`."""
    counts: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        engine.collective_rpc(WRITE_DOWN, folder=folder)
        for file in Path(folder).iterdir():
            counts.update(json.loads(file.read_text()))
    return counts


def _launch_triton() -> None:
    """Let SGLang's platform say that it launches Triton kernels."""
    import msgspec

    platforms: Any = import_module("sglang.srt.platforms")
    platform = platforms.current_platform
    type(platform).capabilities = msgspec.structs.replace(
        platform.capabilities, supports_triton=True
    )


def _let_it_draft() -> None:
    """Let SGLang speculate on its platform, with its own Triton kernels for trees of drafts.

    SGLang 0.5.23 launches those on XPUs alone.
    """
    platforms: Any = import_module("sglang.srt.platforms")
    trees: Any = import_module("sglang.kernels.ops.speculative.spec_tree")
    platform = type(platforms.current_platform)
    platform.supports_speculative_algorithm = lambda self, algorithm: True
    platform.supports_speculative_draft_attention_backend = lambda self, *_: True
    trees._is_xpu = True


def _fork_schedulers() -> None:
    """Give SGLang "fork" where it asks for "spawn"."""
    choose = multiprocessing.set_start_method

    def set_start_method(method: str | None, force: bool = False) -> None:
        choose("fork", force)

    multiprocessing.set_start_method = set_start_method


def _count_launches(gpu: TritonGpu) -> None:
    """Let schedulers write down what they have launched, over SGLang's `collective_rpc`."""
    scheduler: Any = import_module("sglang.srt.managers.scheduler")

    def write_down(_: Any, folder: str) -> None:
        counts = Counter(each.kernel for each in gpu.launches)
        Path(folder, str(os.getpid())).write_text(json.dumps(counts))

    setattr(scheduler.Scheduler, WRITE_DOWN, write_down)
