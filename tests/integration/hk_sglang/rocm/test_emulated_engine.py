"""A whole SGLang engine on an emulated MI355X, with HK and without: its kernels are gfx950's code.

Chunks share steps with decode rows, and later prompts find their beginnings cached. Attention of
decode rows, positions and tables of tokens are SGLang's own Triton kernels. Norms, activations and
rotary embeddings are Inductor's. A finding of the emulator ends the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hk_backend.lab.stock import sglang_engine
from tests.integration.hk_sglang.conftest import ENVIRONMENT
from tests.integration.hk_sglang.e2e.catalogue import RADIX
from tests.integration.shared.e2e.compare import assert_decoded, assert_routed
from tests.integration.shared.e2e.emulated import WITHOUT
from tests.integration.shared.e2e.engine import HK, Checkpoint, Engines, Forks, serve
from tests.integration.shared.e2e.quantized import assert_all_by_hk, assert_on_gfx950, error_in
from tests.integration.shared.e2e.rounding import assert_as_exact, assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import Round, Scenario, ScenarioResult
from tests.kernels.catalogues import serving_few
from tests.models import TINY_LAYERS, random_prompts

RUNNER = "tests.integration.hk_sglang.rocm.emulated_runner"
ENGINE = RADIX | {"attention_backend": "triton", "chunked_prefill_size": 64, "page_size": 16}
BY_HK = {"prefill_attention_backend": "hk"}
ON_GFX950 = HK | {"HK_DEVICE": "emulated:gfx950", "HK_EVIDENCE": "measure"}
LENGTHS = [7, 40, 90]
PREFIX = 64
EXTEND, SPLITS, DECODE = "_fwd_kernel", "_fwd_grouped_kernel_stage1", "_fwd_kernel_stage2"
OF_AN_EXTEND = ("compute_position_kernel", "write_req_to_token_pool_triton", "alloc_extend_kernel")
OF_A_DECODE = ("create_flashinfer_kv_indices_triton", "get_num_kv_splits_triton")
"""Some of the kernels that SGLang launches in each step."""
FUSED = "triton_"
"""Beginning of the names of Inductor's kernels."""


def rounds() -> list[Round]:
    """Scored prompts, decodes beside chunks, and prompts that begin as the longest did."""
    scored = random_prompts(LENGTHS, seed=9)
    longer = [scored[-1][:PREFIX] + more for more in random_prompts([5, 30], seed=11)]
    return [
        Round(scored, max_tokens=4),
        # SGLang lets decode rows into a chunk's step where nobody asked for log-probabilities
        Round(random_prompts(LENGTHS, seed=10), max_tokens=6, tokens_only=True),
        Round(longer, max_tokens=4, teacher_forced=False),
    ]


@pytest.fixture(scope="module")
def engines(folder: Path, checkpoint: Checkpoint) -> Iterator[Engines]:
    """Engines with HK and without; the last one never joins the parts of a decode row."""
    forks = Forks(RUNNER, ENVIRONMENT | sglang_engine.ENVIRONMENT)

    def scenario(name: str, engine: dict[str, object], environment: dict[str, str]) -> Scenario:
        model = checkpoint("tiny-64")
        return Scenario(name, model, rounds(), "bfloat16", ENGINE | engine, "", environment)

    scenarios = [
        scenario("hk", BY_HK, ON_GFX950),
        scenario("stock", {}, {}),
        scenario(f"stock{WITHOUT}{DECODE}", {}, {}),
    ]
    into = folder / "emulated"
    yield Engines(lambda each: serve(forks, each, into, {}, RUNNER), scenarios, into)
    forks.stop()


def launches(result: ScenarioResult) -> Counter[str]:
    return Counter(result.rounds[-1].workers[0].launches)


def steps(result: ScenarioResult) -> tuple[int, int, int]:
    """Number of steps with prompts, of those that decode, too, and of steps that only decode."""
    batches = [batch for item in result.rounds for batch in item.batches or []]
    extends = [batch for batch in batches if batch.prefill_tokens]
    mixed = [batch for batch in extends if batch.decodes]
    return len(extends), len(mixed), len(batches) - len(extends)


def scored(result: ScenarioResult) -> ScenarioResult:
    """The result without the round that asked for tokens only."""
    return replace(result, rounds=[item for item in result.rounds if item.answers[0].logprobs])


@pytest.mark.engine_proof
def test_hk_and_stock_give_the_same_numbers(engines: Engines, checkpoint: Checkpoint) -> None:
    found, stock = engines["hk"], engines["stock"]
    assert all(answer.cached_tokens >= PREFIX for answer in found.rounds[-1].answers)
    assert_routed(found)
    assert_decoded(found)
    assert_all_by_hk(found)
    assert_on_gfx950(found)
    assert_same_numbers(scored(found), scored(stock), checkpoint("tiny-64"))


@pytest.mark.engine_proof
def test_stock_is_as_near_to_the_truth_as_bfloat16_allows(
    engines: Engines, checkpoint: Checkpoint
) -> None:
    """Transformers in bfloat16 is the measure, since both engines share kernels."""
    stock, truth = scored(engines["stock"]), checkpoint("tiny-64")
    assert_as_exact(error_of(stock.rounds, truth), error_in("bfloat16", stock, Path(truth)))


@pytest.mark.engine_proof
@pytest.mark.parametrize("who", ["hk", "stock"])
def test_the_gpu_executed_the_engines_own_kernels(who: str, engines: Engines) -> None:
    """Each step launches its kernels, and each layer of it what is fused.

    Attention is the engine's in stock alone.
    """
    counts = launches(engines[who])
    extends, _, decodes = steps(engines[who])
    assert min(extends, decodes) > 3
    assert all(counts[kernel] >= extends for kernel in OF_AN_EXTEND), counts
    assert all(counts[kernel] >= decodes for kernel in OF_A_DECODE), counts
    least = 0 if who == "hk" else TINY_LAYERS * decodes
    assert all(counts[kernel] >= least for kernel in (SPLITS, DECODE)), counts
    fused = sum(count for kernel, count in counts.items() if kernel.startswith(FUSED))
    assert fused >= 4 * TINY_LAYERS * (extends + decodes)  # norms, an activation, an embedding


@pytest.mark.engine_proof
def test_hk_serves_what_the_parent_did(engines: Engines) -> None:
    """HK's kernels read the parent's cache, and compute prompts and decode rows."""
    found, stock = launches(engines["hk"]), launches(engines["stock"])
    extends, mixed, decodes = steps(engines["hk"])
    assert min(extends, mixed, decodes) > 0
    assert stock[EXTEND] == TINY_LAYERS * extends
    assert stock[DECODE] >= TINY_LAYERS * decodes
    assert found[EXTEND] == found[DECODE] == 0
    for operator in ("attention_prefill", "attention_decode"):
        kernel = serving_few(operator, head_size=64, dtype="bf16", keys="paged")
        assert found[kernel.name] > 0
        assert stock[kernel.name] == 0


@pytest.mark.engine_proof
def test_the_clock_decides_on_attention(engines: Engines) -> None:
    """Both times of attention are modelled; torch's product on the CPU has none to compare with."""
    served = engines.of("hk")
    assert served.lines("modelled for 32 rows: HK ", "triton ")
    assert served.lines("linear bf16 ", "is served: modelled, the engine's kernel is not known")


@pytest.mark.engine_proof
def test_an_engine_without_its_decode_kernel_is_wrong(
    engines: Engines, checkpoint: Checkpoint
) -> None:
    """The control: the answers depend on what the emulated GPU has written."""
    idle, stock = engines[f"stock{WITHOUT}{DECODE}"], engines["stock"]
    assert launches(idle)[DECODE] == 0
    first = replace(idle, rounds=idle.rounds[:1])
    errors = (error_of(each.rounds, checkpoint("tiny-64")) for each in (first, stock))
    with pytest.raises(AssertionError, match=r"error.*stock has"):
        assert_as_exact(*errors)


def test_after_sglang_has_been_imported_it_is_too_late() -> None:
    import sglang  # noqa: F401

    with pytest.raises(RuntimeError, match=r"sglang has been imported; valid: install\(\) before"):
        sglang_engine.install("gfx950")
