"""Single layers of each ROCm backend with HK around them, in many orders of rows.

Builder, cache, writer and implementation are the backend's own. Tests hold batches, graph capture,
the contest with the parent, and that nothing waits for the GPU.

Model Runner V2, the default wherever Triton is, sorts decode rows to the front and no further. So
[decode, fresh, extend] is a batch like any other.

The emulated library counts HIP's synchronising calls. The engine's tensors on a GPU are stand-ins
here. They record each of torch's functions that would read them on the host. AITER_FA's own builder
does read; in a step that HK computes it is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from hk_vllm.attention import contest
from hk_vllm.attention.lazy_metadata import is_built
from vllm.v1.attention.backend import AttentionCGSupport

from hk_backend.devices.hip import device as hip
from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary
from hk_backend.engine import attention as engine
from hk_backend.engine.evidence import contest as prompts
from hk_backend.kernels import catalogue
from hk_backend.ops import registry
from hk_backend.routing.routes import RouteCounters, routes
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.device import OnTheHost, current_streams
from tests.integration.adapter import Environment
from tests.integration.hk_vllm.attention.batch import Batch, Layer
from tests.integration.hk_vllm.rocm import triton_kernels
from tests.integration.hk_vllm.rocm.parents import LAYER_PARENTS, Parent
from tests.integration.hk_vllm.rocm.rocm_layer import rocm_layer, round_to_fp8
from tests.integration.hk_vllm.rocm.torch_kernels import FP8
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import (
    DECODE,
    EXTEND,
    FRESH,
    PADDING,
    Row,
)
from tests.integration.shared.evidence import Bench

pytestmark = [pytest.mark.usefixtures("small"), pytest.mark.triton]


Rows = tuple[Row, ...]

LONG_EXTEND, LONG_FRESH = Row(70, 90), Row(50)
V2_ORDER: Rows = (DECODE, DECODE, LONG_FRESH, EXTEND, FRESH, LONG_EXTEND, PADDING)
SORTED: Rows = (DECODE, DECODE, LONG_EXTEND, EXTEND, FRESH)


def letters(rows: Rows) -> str:
    """D for decode, E for an extend, F for fresh, 0 for padding."""
    names = {DECODE: "D", PADDING: "0"}
    return "".join(names.get(row, "FE"[row.cached > 0]) for row in rows)


@pytest.mark.parametrize(
    ("dtype", "cache", "device"),
    [
        (torch.float32, "auto", "cpu"),
        (torch.bfloat16, "auto", "cpu"),
        (torch.bfloat16, "fp8", "cpu"),
        (torch.bfloat16, "fp8", "emulated:gfx950"),
    ],
)
@pytest.mark.parametrize("rows", [V2_ORDER, SORTED], ids=letters)
def test_orders(
    parent: Parent,
    rows: Rows,
    dtype: torch.dtype,
    cache: str,
    device: str,
    counters: RouteCounters,
    environment: Environment,
) -> None:
    """HK computes every order of rows over every layout, dtype and cache.

    A ROCm cache keeps x channels together in 16 bytes: 4 or 8 values, or 16 of an FP8 cache. An FP8
    cache has the scales that the parent's own kernels apply.
    """
    environment(HK_DEVICE=device)
    batch = Batch(rocm_layer(parent, wrapped=True, dtype=dtype, cache_dtype=cache), rows)
    if cache == "fp8":
        round_to_fp8(batch, parent)
    batch.run_and_check()
    assert counters.routed_share() == 1.0
    batch.output *= 1.02
    with pytest.raises(AssertionError, match="out of bounds"):
        batch.check()


VERIFIES = Row(3, 40, verifies=True), Row(1, 21), Row(3, 1, verifies=True)


@pytest.mark.parametrize(
    ("cache", "device"), [("auto", "cpu"), ("auto", "emulated:gfx950"), ("fp8", "emulated:gfx950")]
)
@pytest.mark.parametrize("rows", [V2_ORDER, (DECODE, Row(1, 95)), VERIFIES], ids=letters)
def test_decode(
    parent: Parent, rows: Rows, cache: str, device: str, environment: Environment
) -> None:
    """HK computes decode rows, and rows that verify drafts, over every layout and cache."""
    environment(HK_BACKEND="attention,decode", HK_DEVICE=device)
    routes.reset()
    layer = rocm_layer(parent, wrapped=True, dtype=torch.bfloat16, cache_dtype=cache, drafts=2)
    batch = Batch(layer, rows)
    if cache == "fp8":
        round_to_fp8(batch, parent)
    batch.run_and_check()
    found = routes.report()
    prefill = sum(row.query for row in rows if row.query > 1 and not row.verifies)
    decodes = batch.num_tokens - prefill
    assert (found["decode"]["tokens"], found["decode"]["fallbacks"]) == (decodes, {})
    assert found.get("attention", {"tokens": 0})["tokens"] == prefill
    batch.output *= 1.02
    with pytest.raises(AssertionError, match="out of bounds"):
        batch.check()


@pytest.mark.parametrize("rows", [(DECODE, DECODE), (Row(3, 40), Row(3, 21))], ids=letters)
def test_capture_routes_nothing(
    parent: Parent, rows: Rows, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs of decode rows, or of rows that verify two drafts, contain nothing of HK's.

    ROCM_ATTN's build writes 1 into every length and 0 into every start, on the device only. HK
    serves the next batch as any other.
    """
    gpu = triton_kernels.gpu()
    monkeypatch.setattr(gpu, "strict", False)  # all requests of such a batch write the same row
    monkeypatch.setattr(gpu.gpu, "threads", 1)  # in the same order each time
    outputs, supports = [], []
    for wrapped in (False, True):
        layer = rocm_layer(parent, wrapped=wrapped)
        batch = Batch(layer, rows)
        common = batch.common_metadata()
        metadata = layer.builder.build_for_cudagraph_capture(common)
        if parent.member == "ROCM_ATTN":
            assert metadata.seq_lens.tolist() == [1, 1]
            assert common.query_start_loc.tolist() == [0, 0, 0]
        outputs.append(batch.forward(metadata))
        asked = layer.config, layer.builder.kv_cache_spec
        supports.append(layer.builder.get_cudagraph_support(*asked).value)
    torch.testing.assert_close(*outputs, rtol=0, atol=0, equal_nan=True)
    assert (counters.served.calls, dict(counters.fallbacks)) == (0, {})
    assert supports[1] == min(supports[0], AttentionCGSupport.UNIFORM_BATCH.value)
    Batch(layer, (DECODE, EXTEND)).run_and_check()
    assert counters.served.tokens == EXTEND.query


@pytest.mark.parametrize("cache", ["auto", "fp8"])
def test_contest(bench: Bench, parent: Parent, monkeypatch: pytest.MonkeyPatch, cache: str) -> None:
    """HK and the parent compute prompts of several blocks, the last one not full.

    Over FP8 HK and some parents read the projected keys. Other parents read what the cache holds.
    """
    monkeypatch.setattr(prompts, "PROMPTS", (5, 70))
    layer = rocm_layer(parent, wrapped=True, cache_dtype=cache)
    assert ("fp8 cache" in layer.impl._hk_decision.kind.layer) == (cache == "fp8")
    assert bench.rows == [(5, 70)]
    for tokens, (ours, theirs) in bench.outputs.items():
        query, key, value = contest.tensors(layer.impl, tokens)
        check_rows(ours, [(query, key, value)])
        projected = parent.member in ("ROCM_ATTN", "ROCM_AITER_FA") and not parent.shuffled
        if cache == "fp8" and not projected:
            key, value = (each.to(FP8).to(each.dtype) for each in (key, value))
        check_rows(theirs, [(query, key, value)])
        with pytest.raises(AssertionError):
            check_rows(theirs, [(query, key, value)], sliding_window=4)


# -- neither a step's metadata nor a layer's forward waits for the GPU


STEP_OF_FRESH, STEP_WITH_EXTENDS = [FRESH, Row(70)], [EXTEND, FRESH, Row(9, 96)]


def kernels_read(parent: Parent) -> bool:
    return parent.member != "ROCM_ATTN" and not parent.shuffled


READ_BY_KERNELS = [parent for parent in LAYER_PARENTS if kernels_read(parent)]
STEPS = [
    *((parent, STEP_OF_FRESH) for parent in LAYER_PARENTS),
    *((parent, STEP_WITH_EXTENDS) for parent in READ_BY_KERNELS),
]
"""Every parent and step that HK computes with the GPU kernels."""

OF_THE_GPU = ("query_start_loc", "seq_lens", "block_table_tensor", "slot_mapping")
"""Facts that the runner of vLLM's GPU worker keeps on the GPU; the others are the host's."""

NAMED = "item tolist numpy cpu equal allclose is_nonzero nonzero unique masked_select"
SPECIAL = "bool int float index array contains repr format"
READS = {*NAMED.split(), *(f"__{name}__" for name in SPECIAL.split())}
"""Functions of torch that wait for a GPU."""


class OnGpu(torch.Tensor):
    """A tensor that stands for one on the GPU: `reads` lists what would wait for it."""

    reads: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in READS or (name == "to" and "cpu" in map(str, args)):
            cls.reads.append(name)
        if name == "copy_" and not isinstance(args[0], OnGpu):
            cls.reads.append("copy_ to the host")
        return super().__torch_function__(func, types, args, kwargs or {})


def on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_subclass(OnGpu)


@pytest.fixture
def library() -> Iterator[EmulatedLibrary]:
    found = EmulatedLibrary(LIBRARY)
    found.reset("gfx950", 2)
    yield found
    found.reset("gfx950", 1)


@pytest.fixture
def device(library: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch) -> OnTheHost:
    """The GPU of this process, whose kernels have passed their checks."""
    current_streams(library, monkeypatch)
    found = OnTheHost(library, catalogue("gfx950"))
    monkeypatch.setattr(found, "verify", lambda *_: SERVED)
    monkeypatch.setattr(hip, "hip_device", lambda: found)
    # skip torch's dispatcher, which hides tensor subclasses from what it calls
    monkeypatch.setattr(registry, "watched", lambda query: False)
    return found


@pytest.fixture
def layer(parent: Parent, device: OnTheHost, environment: Environment) -> Layer:
    environment(HK_DEVICE="hip")
    return rocm_layer(parent, wrapped=True, dtype=torch.bfloat16)


def gpu_facts(batch: Batch) -> dict[str, torch.Tensor]:
    common = batch.common_metadata()
    return {name: on_gpu(getattr(common, name)) for name in OF_THE_GPU}


def dummy_run(layer: Layer) -> None:
    """Run a layer as the engine does after binding its caches and before the first request."""
    query = torch.zeros(3, 4, 64, dtype=torch.bfloat16)
    key = torch.zeros(3, 2, 64, dtype=torch.bfloat16)
    layer.impl.forward(layer.module, query, key, key, layer.kv_cache, None, output=query.clone())


@pytest.mark.parametrize(("parent", "rows"), STEPS, indirect=["parent"], ids=str)
def test_a_step_waits_for_nothing(
    rows: list[Row],
    parent: Parent,
    layer: Layer,
    device: OnTheHost,
    library: EmulatedLibrary,
    counters: RouteCounters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = Batch(layer, rows)
    dummy_run(layer)
    alone = Batch(rocm_layer(parent, wrapped=False, dtype=torch.bfloat16), rows)
    OnGpu.reads.clear()
    alone.build(**gpu_facts(alone))
    of_the_parent = OnGpu.reads.copy()

    layer.kv_cache = on_gpu(layer.kv_cache)
    tensors = {name: on_gpu(getattr(batch, name)) for name in ("query", "key", "value")}
    batch.output = on_gpu(batch.output)
    library.forget_report()
    OnGpu.reads.clear()
    metadata = batch.build(**gpu_facts(batch))
    batch.forward(metadata, **tensors)
    with monkeypatch.context() as patch:  # a later call skips the operator
        patch.setattr(engine, "attention_prefill", lambda **_: pytest.fail("a first call"))
        batch.forward(metadata, **tensors)
    assert library.launch_calls() == 2
    assert OnGpu.reads == []
    assert library.report()["synchronising_calls"] == 0
    assert not is_built(metadata)
    assert bool(of_the_parent) == (parent.member == "ROCM_AITER_FA"), "the control"

    batch.output = batch.output.as_subclass(torch.Tensor)
    assert batch.output.isnan().all(), "it ran before anything waited"
    library.synchronise(device.memory.stream(0))
    assert counters.served.tokens == 2 * sum(row.query for row in rows)
    assert not counters.fallbacks
    batch.check()


@pytest.mark.parametrize("parent", READ_BY_KERNELS, indirect=True, ids=str)
def test_decode_waits_for_nothing(
    parent: Parent,
    device: OnTheHost,
    library: EmulatedLibrary,
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step is one launch for its prefill and one for its decode rows."""
    environment(HK_DEVICE="hip", HK_BACKEND="attention,decode")
    routes.reset()
    layer = rocm_layer(parent, wrapped=True, dtype=torch.bfloat16)
    batch = Batch(layer, [DECODE, Row(1, 95), EXTEND])
    dummy_run(layer)
    layer.kv_cache = on_gpu(layer.kv_cache)
    tensors = {name: on_gpu(getattr(batch, name)) for name in ("query", "key", "value")}
    library.forget_report()
    OnGpu.reads.clear()
    metadata = batch.build(**gpu_facts(batch))
    batch.forward(metadata, **tensors)
    with monkeypatch.context() as patch:  # a later call skips the operators
        for name in ("attention_prefill", "attention_decode"):
            patch.setattr(engine, name, lambda **_: pytest.fail("a first call"))
        batch.forward(metadata, **tensors)
    assert library.launch_calls() == 4
    assert OnGpu.reads == []
    assert library.report()["synchronising_calls"] == 0
    assert not is_built(metadata)
    library.synchronise(device.memory.stream(0))
    batch.check()
    assert routes.report()["decode"]["tokens"] == 4


GATHERED = [FRESH, DECODE, EXTEND, DECODE]


@pytest.mark.parametrize("parent", READ_BY_KERNELS, indirect=True, ids=str)
def test_gathering_rows_waits_for_nothing(layer: Layer, counters: RouteCounters) -> None:
    batch = Batch(layer, GATHERED)
    OnGpu.reads.clear()
    metadata = batch.build(**gpu_facts(batch))
    assert metadata.hk.mine.gathered
    assert metadata.hk.others.gathered
    assert OnGpu.reads == []
