"""A whole vLLM engine on an emulated MI355X, with HK and without: every step is gfx950's code.

Prompts are chunked beside decodes, and later ones find their beginnings cached. Attention of decode
rows, cache writes, block tables and sampling are vLLM's own Triton kernels. Norms, activations and
rotary embeddings are Inductor's. A finding of the emulator ends the engine.
"""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hk_backend.lab.stock import vllm_engine
from tests.integration.hk_vllm.e2e.engine import COMPILED, ENVIRONMENT, serve
from tests.integration.hk_vllm.rocm.test_engines import ENGINE, assert_far, assert_traffic, rounds
from tests.integration.shared.e2e.compare import assert_decoded, assert_routed
from tests.integration.shared.e2e.emulated import WITHOUT
from tests.integration.shared.e2e.engine import HK, Engines, Forks
from tests.integration.shared.e2e.quantized import assert_all_by_hk, assert_on_gfx950
from tests.integration.shared.e2e.rounding import assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import Scenario, ScenarioResult
from tests.kernels.catalogues import serving_few
from tests.models import TINY_LAYERS, tiny_llama

pytestmark = pytest.mark.triton
HEAD_SIZE = 64
FORKS = Forks(
    "tests.integration.hk_vllm.rocm.emulated_runner",
    ENVIRONMENT | COMPILED | vllm_engine.ENVIRONMENT,
)
DECODE, WRITE = "kernel_unified_attention", "reshape_and_cache_kernel_flash"
FUSED = "triton_"
"""Beginning of the names of Inductor's kernels."""
OF_A_STEP = (
    *("_gather_block_tables_kernel", "_compute_slot_mappings_kernel", "_gumbel_sample_kernel"),
    *("_prepare_pos_seq_lens_kernel", "_post_update_kernel"),
)
"""Some of the kernels that vLLM's model runner launches in each step."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("models"), HEAD_SIZE)


@pytest.fixture(scope="module")
def engines(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engines]:
    """Engines with HK and without; the last one never writes its cache."""

    def scenario(name: str) -> Scenario:
        engine = {**ENGINE, "enforce_eager": False}
        return Scenario(name, str(checkpoint), rounds(), "bfloat16", engine)

    folder = tmp_path_factory.mktemp("emulated")
    # By the clock HK gains less than 3% on so short prompts, so that measured it would serve none.
    on_gpu = {**HK, "HK_DEVICE": "emulated:gfx950", "HK_EVIDENCE": "ignore"}
    return {
        "hk": serve([scenario("hk")], folder / "hk", on_gpu, FORKS),
        "measured": serve(
            [replace(scenario("measured"), rounds=rounds()[:1])],
            folder / "measured",
            {**on_gpu, "HK_EVIDENCE": "measure"},
            FORKS,
        ),
        "stock": serve(map(scenario, ("stock", f"stock{WITHOUT}{WRITE}")), folder, {}, FORKS),
    }


def test_it_is_installed_before_vllm_is_imported() -> None:
    importlib.import_module("vllm")
    with pytest.raises(RuntimeError, match=r"vllm has been imported; valid: install\(\) before"):
        vllm_engine.install()
    with pytest.raises(ValueError, match="arch 'gfx90a'; valid: gfx942, gfx950"):
        vllm_engine.emulated_gpu.install_before("no_engine", "gfx90a")


def launches(result: ScenarioResult) -> Counter[str]:
    return Counter(result.rounds[-1].workers[-1].launches)


@pytest.mark.engine_proof
def test_hk_and_stock_give_the_same_numbers(engines: dict[str, Engines], checkpoint: Path) -> None:
    found, stock = engines["hk"]["hk"], engines["stock"]["stock"]
    assert_traffic(found)
    assert_routed(found)
    assert_decoded(found)
    assert_all_by_hk(found)
    assert_on_gfx950(found)
    assert_same_numbers(found, stock, str(checkpoint))


@pytest.mark.engine_proof
@pytest.mark.parametrize("who", ["hk", "stock"])
def test_the_gpu_executed_the_engines_own_kernels(who: str, engines: dict[str, Engines]) -> None:
    """Each step launches the runner's kernels, and each of its layers a write.

    Attention is the engine's in stock alone.
    """
    found = engines[who][who]
    counts = launches(found)
    steps = sum(len(item.batches or []) for item in found.rounds)
    decodes = sum(1 for item in found.rounds for batch in item.batches or [] if batch.decodes)
    assert steps > decodes > 0
    assert counts[WRITE] >= TINY_LAYERS * steps
    assert counts[DECODE] == 0 if who == "hk" else counts[DECODE] >= TINY_LAYERS * steps
    assert all(counts[kernel] >= steps for kernel in OF_A_STEP), counts
    fused = sum(count for kernel, count in counts.items() if kernel.startswith(FUSED))
    assert fused >= 3 * TINY_LAYERS * steps  # two norms and an activation


@pytest.mark.engine_proof
def test_hk_serves_what_the_parent_did(engines: dict[str, Engines]) -> None:
    """HK's kernels read the parent's cache, and compute prompts and decode rows."""
    found, stock = engines["hk"]["hk"], engines["stock"]["stock"]
    for operator in ("attention_prefill", "attention_decode"):
        kernel = serving_few(operator, head_size=HEAD_SIZE, dtype="bf16", keys="paged")
        assert launches(found)[kernel.name] > 0
        assert launches(stock)[kernel.name] == 0


@pytest.mark.engine_proof
def test_the_clock_decides_on_attention(engines: dict[str, Engines]) -> None:
    """Both times of attention are modelled; torch's product on the CPU has none to compare with."""
    served = engines["measured"].of("measured")
    assert served.lines("modelled for 32 rows: HK ", "TRITON_ATTN ")
    assert served.lines("linear bf16 ", "is served: modelled, the engine's kernel is not known")


@pytest.mark.engine_proof
def test_an_engine_that_never_writes_its_cache_is_wrong(
    engines: dict[str, Engines], checkpoint: Path
) -> None:
    """The control: the answers depend on what the emulated GPU has written."""
    idle, stock = engines["stock"][f"stock{WITHOUT}{WRITE}"], engines["stock"]["stock"]
    assert launches(idle)[WRITE] == 0
    first = replace(idle, rounds=idle.rounds[:1])
    assert_far(*(error_of(each.rounds, str(checkpoint)) for each in (first, stock)))
