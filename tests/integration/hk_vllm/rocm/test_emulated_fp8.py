"""An FP8 KV cache beneath whole engines, its extends computed by MI355X machine code.

As test_emulated.py, over a checkpoint with scales for its keys and values.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.integration.hk_vllm.rocm.defaults.run import QUANTISED
from tests.integration.hk_vllm.rocm.parents import PARENTS
from tests.integration.hk_vllm.rocm.rocm_layer import SCALES
from tests.integration.hk_vllm.rocm.test_emulated import DEVICES, SPLIT, serve_on
from tests.integration.hk_vllm.rocm.test_end_to_end import ENGINE, assert_traffic, rounds
from tests.integration.shared.e2e.compare import assert_routed
from tests.integration.shared.e2e.engine import Engines
from tests.integration.shared.e2e.narrow_cache import stored
from tests.integration.shared.e2e.oracle import Cache
from tests.integration.shared.e2e.rounding import assert_as_exact, assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import Scenario
from tests.kernels.catalogues import serving_few
from tests.models import TINY_LAYERS, tiny_llama

HEAD_SIZE = 64
SERVED = ("rocm-attn", "triton-nhd")
"""A split cache, vLLM's default, and one of rows."""
BROKEN = "WrongScale"
CODES = Cache(*(stored(torch.float8_e4m3fn, scale) for scale in SCALES))
"""The truth's. HK computes a prompt's first chunk over keys and values that are not rounded: all
devices are off by that, and differ by less than what each is off by."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint without scales, as the truth reads it."""
    return tiny_llama(tmp_path_factory.mktemp("models"), HEAD_SIZE)


@pytest.fixture(scope="module")
def served(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engines]:
    """All engines, by device; on the emulated one also with a fault from the start:
    a prepared launch keeps its scales."""
    folder = tmp_path_factory.mktemp("emulated-fp8")
    checkpoint = str(with_scales(plain, folder / "scaled"))

    def scenario(parent: str) -> Scenario:
        size = PARENTS[parent].block_size
        engine = {**ENGINE, "block_size": size, "kv_cache_dtype": "fp8"}
        return Scenario(f"{parent} hk", checkpoint, rounds(), "bfloat16", engine)

    healthy = [scenario(parent) for parent in SERVED]
    [scored, _] = rounds()
    faulty = [replace(scored, mutation=BROKEN)]
    broken = replace(healthy[0], name=f"{SERVED[0]} hk {BROKEN}", rounds=faulty)
    return {device: serve_on(device, [*healthy, broken], folder) for device in DEVICES}


def with_scales(plain: Path, checkpoint: Path) -> Path:
    """`checkpoint`: a copy of `plain` with `SCALES`, as llm-compressor writes them."""
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
@pytest.mark.parametrize("parent", SERVED)
def test_extends(parent: str, plain: Path, served: dict[str, Engines]) -> None:
    """Every prefill row is HK's, with the log-probabilities of the cpu device: those of attention
    over codes, and not over what they were made of."""
    emulated, cpu = (served[device][f"{parent} hk"] for device in DEVICES)
    for result in (emulated, cpu):
        assert_traffic(result)
        assert_routed(result)
    keys = "split" if parent in SPLIT else "paged"
    kernel = serving_few(
        "attention_prefill", dtype="bf16", head_size=HEAD_SIZE, keys=keys, stored="e4m3"
    )
    assert emulated.rounds[-1].workers[0].launches[kernel.name] > 0
    checkpoint = str(plain)
    assert_same_numbers(emulated, cpu, checkpoint, CODES)
    with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
        assert_as_exact(
            error_of(emulated.rounds, checkpoint), error_of(cpu.rounds, checkpoint, CODES)
        )


@pytest.mark.engine_proof
def test_a_wrong_scale_is_seen(plain: Path, served: dict[str, Engines]) -> None:
    """The values' for the keys', and the other way round: HK counts the tokens as its own."""
    emulated, cpu = (served[device] for device in DEVICES)
    found, healthy = emulated[f"{SERVED[0]} hk {BROKEN}"], cpu[f"{SERVED[0]} hk"]
    assert_routed(found)
    assert found.rounds[-1].workers[0].mutated_calls > 0
    errors = (error_of(of.rounds, str(plain), CODES) for of in (found, healthy))
    with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
        assert_as_exact(*errors)
