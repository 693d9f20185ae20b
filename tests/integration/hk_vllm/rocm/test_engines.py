"""vLLM engines over every ROCm cache layout: chunked prefill and prefix caching, through HK.

The platform is this machine's CPU. The attention backend is one of vLLM's ROCm backends. Its own
kernels are MI355X machine code (triton_kernels.py), or torch where another library compiles them.
HK computes on the cpu device, or by MI355X machine code, over the model's dtype or an FP8 cache
with a checkpoint's scales. All but the last engine are proofs.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.integration.hk_vllm.e2e.engine import EAGER, ENVIRONMENT, serve
from tests.integration.hk_vllm.rocm.defaults.run import QUANTISED
from tests.integration.hk_vllm.rocm.parents import PARENTS
from tests.integration.hk_vllm.rocm.rocm_layer import SCALES
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.e2e.compare import (
    assert_decoded,
    assert_replayed,
    assert_routed,
    assert_true_answers,
)
from tests.integration.shared.e2e.engine import HK, Engines, Forks
from tests.integration.shared.e2e.linear_faults import KERNEL_FAULTS, LENGTHS
from tests.integration.shared.e2e.narrow_cache import stored
from tests.integration.shared.e2e.oracle import Cache
from tests.integration.shared.e2e.quantized import (
    assert_all_by_hk,
    assert_on_gfx950,
    error_in,
)
from tests.integration.shared.e2e.rounding import (
    Errors,
    assert_as_exact,
    assert_same_numbers,
    error_of,
)
from tests.integration.shared.e2e.scenario import Round, Scenario, ScenarioResult
from tests.integration.shared.linear.devices import GFX950
from tests.kernels.catalogues import serving_few
from tests.models import TINY_LAYERS, random_prompts, tiny_llama

pytestmark = pytest.mark.triton
PREFIX = 96
ENGINE = {
    "max_model_len": 512,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 4,
    "num_gpu_blocks_override": 96,
}
"""Prompts are cut into pieces of at most 64 tokens, which share their steps with decodes. Prefixes
are cached, which is vLLM's default."""
RUNNER = "tests.integration.hk_vllm.rocm.runner"
FORKS = Forks(RUNNER, ENVIRONMENT | EAGER)
DEVICES = ("emulated:gfx950", "cpu")
READ_IN_PLACE = (
    ("rocm-attn", 64),  # K [B, H, D/x, N, x] and V [B, H, D, N]: the default
    ("rocm-attn", 128),
    ("aiter-fa", 64),  # [B, H, N, 2D]
    ("aiter-fa", 128),
    ("aiter-fa-planes", 64),  # HND: a plane per head
    ("unified", 64),
    ("triton-nhd", 64),  # NHD
    ("aiter-fa-shuffled", 64),  # K of rocm-attn, V [B, H, N/x, D, x]
)
"""Parents whose caches the GPU kernels read, with head sizes."""
SPLIT = ("rocm-attn", "aiter-fa-shuffled")
OVER_FP8 = ("rocm-attn", "triton-nhd")
"""Parents for FP8: a split cache, which is vLLM's default, and one of rows."""
CODES = Cache(*(stored(torch.float8_e4m3fn, scale) for scale in SCALES))
"""The rounding of the truth's cache. HK computes a prompt's first chunk over keys and values that
are not rounded. All devices are off by that, and differ by less than what each is off by."""


def rounds() -> list[Round]:
    """Prompts with a common beginning, every token scored; then longer ones that find it cached."""
    [prefix] = random_prompts([PREFIX], seed=1)
    first = [prefix + tail for tail in random_prompts([7, 70, 33, 150], seed=2)]
    more = random_prompts([20, 3, 40, 60], seed=3)
    second = [prompt + tail for prompt, tail in zip(first, more, strict=True)]
    return [Round(first), Round(second, teacher_forced=False)]


def scenario(
    parent: str, checkpoint: Path, what: str, dtype: str = "bfloat16", **engine: Any
) -> Scenario:
    """The scenario of an engine over `parent`, whose name begins with the parent's."""
    engine = {**ENGINE, "block_size": PARENTS[parent].block_size, **engine}
    return Scenario(f"{parent} {what}", str(checkpoint), rounds(), dtype, engine)


def serve_on(device: str, scenarios: list[Scenario], folder: Path, forks: Forks = FORKS) -> Engines:
    """Serve `scenarios` over the parents that they name, with HK on `device`."""
    environment = {**HK, "HK_DEVICE": device, "OMP_NUM_THREADS": "1"}
    return serve(scenarios, folder / device.partition(":")[0], environment, forks, RUNNER)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Models by head size."""
    folder = tmp_path_factory.mktemp("models")
    return {size: tiny_llama(folder, size) for size in (64, 128)}


@pytest.fixture(scope="module")
def engines(models: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Engines]:
    """Every engine, on each of `DEVICES`."""
    folder = tmp_path_factory.mktemp("rocm")
    scaled = with_scales(models[64], folder / "scaled")
    asked = [scenario(parent, models[64], "float32", "float32") for parent in PARENTS]
    plain = [scenario(parent, models[size], f"d{size}") for parent, size in READ_IN_PLACE]
    codes = [scenario(parent, scaled, "fp8", kv_cache_dtype="fp8") for parent in OVER_FP8]
    in_graphs = replace(plain[0], name="rocm-attn graphs", sabotage="linear_in_graphs")
    asked += [*plain, in_graphs, *codes]
    return [serve_on(device, asked, folder) for device in DEVICES]


def with_scales(plain: Path, checkpoint: Path) -> Path:
    """Copy `plain` to `checkpoint`, and add `SCALES` as llm-compressor writes them."""
    shutil.copytree(plain, checkpoint)
    config, weights = checkpoint / "config.json", checkpoint / "model.safetensors"
    described = {**json.loads(config.read_text()), "quantization_config": QUANTISED}
    config.write_text(json.dumps(described))
    scales = {
        f"model.layers.{layer}.self_attn.{name}": torch.tensor([scale])
        for layer in range(TINY_LAYERS)
        for name, scale in zip(("k_scale", "v_scale"), SCALES, strict=True)
    }
    save_file({**load_file(weights), **scales}, weights, {"format": "pt"})
    return checkpoint


@pytest.mark.engine_proof
@pytest.mark.parametrize("parent", PARENTS)
def test_float32(parent: str, engines: list[Engines], models: dict[int, Path]) -> None:
    """Tokens and log-probabilities are those of transformers, and HK computed every prefill."""
    found = engines[1][f"{parent} float32"]
    assert_traffic(found)
    assert_routed(found)
    for item in found.rounds:
        assert_true_answers(item.answers, str(models[64]))


@pytest.mark.engine_proof
@pytest.mark.parametrize(("parent", "head_size"), READ_IN_PLACE)
def test_extends(
    parent: str, head_size: int, engines: list[Engines], models: dict[int, Path]
) -> None:
    """HK computes every prefill row, with the log-probabilities of the cpu device."""
    emulated, cpu = both(engines, f"{parent} d{head_size}")
    assert_launched(emulated, parent, head_size)
    assert_same_numbers(emulated, cpu, str(models[head_size]))


@pytest.mark.engine_proof
@pytest.mark.parametrize("parent", OVER_FP8)
def test_extends_over_fp8(parent: str, engines: list[Engines], models: dict[int, Path]) -> None:
    """Extends over an FP8 cache compute with its codes, not with the numbers before rounding."""
    emulated, cpu = both(engines, f"{parent} fp8")
    assert_launched(emulated, parent, 64, stored="e4m3")
    checkpoint = str(models[64])
    assert_same_numbers(emulated, cpu, checkpoint, CODES)
    assert_far(error_of(emulated.rounds, checkpoint), error_of(cpu.rounds, checkpoint, CODES))


@pytest.mark.engine_proof
def test_linear_layers_in_graphs(engines: list[Engines], models: dict[int, Path]) -> None:
    """Linear layers are captured once and replayed in each step; attention is not captured."""
    replayed = engines[0]["rocm-attn graphs"]
    assert_replayed(replayed)
    assert_same_numbers(replayed, engines[1]["rocm-attn d64"], str(models[64]))


def both(engines: list[Engines], name: str) -> tuple[ScenarioResult, ScenarioResult]:
    """An engine's answers on the emulated and on the cpu device, after a check of its traffic."""
    emulated, cpu = (device[name] for device in engines)
    for result in (emulated, cpu):
        assert_traffic(result)
        assert_routed(result)
        assert_decoded(result)
    return emulated, cpu


def assert_traffic(result: ScenarioResult) -> None:
    """Hold that prompts were chunked beside decodes, and that the cache had their beginnings."""
    first, second = result.rounds
    assert first.batches is not None
    assert any(batch.decodes and batch.extends for batch in first.batches), first.batches
    assert any(batch.fresh for batch in first.batches), first.batches
    assert all(answer.cached_tokens >= 64 for answer in second.answers)


def assert_launched(result: ScenarioResult, parent: str, head_size: int, **facts: str) -> None:
    """Hold that the kernels for the parent's cache were launched."""
    keys = "split" if parent in SPLIT else "paged"
    facts |= {"dtype": "bf16", "keys": keys}
    for operator in ("attention_prefill", "attention_decode"):
        kernel = serving_few(operator, head_size=head_size, **facts)
        assert result.rounds[-1].workers[0].launches[kernel.name] > 0


def assert_far(found: Any, stock: Any) -> None:
    with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
        assert_as_exact(found, stock)


# -- one engine over an FP8 checkpoint, both routes by MI355X machine code, at every commit

PARENT, HEAD_SIZE, DTYPE = "rocm-attn", 64, "bfloat16"
SCHEME = SCHEMES["ct-channel-token"]
FAULTS = ("PageOffByOne", "ValuesAsRows")
ALL_FAULTS = (*FAULTS, *KERNEL_FAULTS)


def faulty(fault: str) -> Round:
    """A round with a fault: prompts for linear layers, or prompts whose beginnings are cached."""
    if fault not in FAULTS:
        return Round(random_prompts(LENGTHS, seed=11), max_tokens=1, mutation=fault)
    [first, _] = rounds()
    tails = random_prompts([24] * len(first.prompts), seed=4 + FAULTS.index(fault))
    prompts = [prompt + tail for prompt, tail in zip(first.prompts, tails, strict=True)]
    return Round(prompts, teacher_forced=False, mutation=fault)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("fp8")
    return make(SCHEME, tiny_llama(folder, HEAD_SIZE), folder)


@pytest.fixture(scope="module")
def whole(made: Made, tmp_path_factory: pytest.TempPathFactory) -> ScenarioResult:
    """All rounds: healthy ones, then one for each fault."""
    asked = [*rounds(), *map(faulty, ALL_FAULTS)]
    one = replace(scenario(PARENT, made.checkpoint, "quantised"), rounds=asked)
    return serve_on(GFX950, [one], tmp_path_factory.mktemp("served"))[one.name]


@pytest.fixture(scope="module")
def healthy(whole: ScenarioResult) -> ScenarioResult:
    return replace(whole, rounds=whole.rounds[: len(rounds())])


@pytest.fixture(scope="module")
def allowed(healthy: ScenarioResult, made: Made) -> Errors:
    """The error of transformers in bfloat16, with the checkpoint's own rounding."""
    return error_in(DTYPE, healthy, made.truth)


def test_answers(healthy: ScenarioResult, made: Made, allowed: Errors) -> None:
    assert_traffic(healthy)
    assert_as_exact(error_of(healthy.rounds, str(made.truth)), allowed)


def test_machine_code_computed_it(healthy: ScenarioResult) -> None:
    """MI355X machine code computes every row of attention and every linear layer.

    Kernels that read a split cache compute the extends and the decode rows.
    """
    assert_routed(healthy)
    assert_decoded(healthy)
    assert_all_by_hk(healthy)
    assert_on_gfx950(healthy)
    assert_launched(healthy, PARENT, HEAD_SIZE)


@pytest.mark.parametrize("fault", ALL_FAULTS)
def test_a_fault_shows(fault: str, whole: ScenarioResult, made: Made, allowed: Errors) -> None:
    """HK counts the tokens as its own, and they are far from the truth."""
    index = len(rounds()) + ALL_FAULTS.index(fault)
    before, item = whole.rounds[index - 1].workers[0], whole.rounds[index]
    [after] = item.workers
    assert after.mutated_calls > before.mutated_calls
    assert after.routes["attention"]["on"]
    assert after.routes["linear"]["on"]
    assert_far(error_of([item], str(made.truth)), allowed)
