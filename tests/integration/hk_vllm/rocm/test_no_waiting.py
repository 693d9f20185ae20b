"""Neither building a step's metadata nor a layer's forward waits for the GPU.

Every parent's real builder and writer, HK's plan and implementation, the hip device's launch: HIP's
synchronising calls are counted by the emulated library, and torch's by the tensors themselves:
those that an engine keeps on its GPU record every function that would read them on the host.
AITER_FA's own builder does read; in a step that HK computes it is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from hk_vllm.attention.unbuilt import is_built

from hk_backend.devices.hip import device as hip
from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary
from hk_backend.engine import attention as engine
from hk_backend.kernels import catalogue
from hk_backend.ops import attention
from hk_backend.routing.routes import RouteCounters
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.device import OnTheHost, current_streams
from tests.integration.hk_vllm.attention.batch import Batch, Layer
from tests.integration.hk_vllm.rocm.parents import LAYER_PARENTS, Parent
from tests.integration.hk_vllm.rocm.rocm_layer import rocm_layer
from tests.integration.shared.attention.rows import DECODE, EXTEND, FRESH, Row

pytestmark = pytest.mark.usefixtures("small")

STEP_OF_FRESH, STEP_WITH_EXTENDS = [FRESH, Row(70)], [EXTEND, FRESH, Row(9, 96)]


def kernels_read(parent: Parent) -> bool:
    return parent.member != "ROCM_ATTN" and not parent.shuffled


STEPS = [
    *((parent, STEP_OF_FRESH) for parent in LAYER_PARENTS),
    *((parent, STEP_WITH_EXTENDS) for parent in LAYER_PARENTS if kernels_read(parent)),
]
"""All that HK computes with the GPU kernels."""

OF_THE_GPU = ("query_start_loc", "seq_lens", "block_table_tensor", "slot_mapping")
"""What the runner of vLLM's GPU worker keeps there; the other facts are the host's."""

NAMED = "item tolist numpy cpu equal allclose is_nonzero nonzero unique masked_select"
SPECIAL = "bool int float index array contains repr format"
READS = {*NAMED.split(), *(f"__{name}__" for name in SPECIAL.split())}
"""Functions of torch that wait for a GPU."""


class OnGpu(torch.Tensor):
    """A tensor that stands for one of the GPU: `reads` lists what would wait for it."""

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
    # past torch's dispatcher, which hides tensor subclasses from what it calls
    monkeypatch.setattr(attention, "watched", lambda query: False)
    return found


@pytest.fixture
def layer(parent: Parent, device: OnTheHost, environment: Callable[..., None]) -> Layer:
    environment(HK_DEVICE="hip")
    return rocm_layer(parent, wrapped=True, dtype=torch.bfloat16)


def gpu_facts(batch: Batch) -> dict[str, torch.Tensor]:
    common = batch.common_metadata()
    return {name: on_gpu(getattr(common, name)) for name in OF_THE_GPU}


def dummy_run(layer: Layer) -> None:
    """What the engine does between binding its caches and the first request."""
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
    with monkeypatch.context() as patch:  # the second is of a layer that was met
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


GATHERED = [FRESH, DECODE, EXTEND, DECODE]


@pytest.mark.parametrize("parent", filter(kernels_read, LAYER_PARENTS), indirect=True, ids=str)
def test_gathering_rows_waits_for_nothing(layer: Layer, counters: RouteCounters) -> None:
    batch = Batch(layer, GATHERED)
    OnGpu.reads.clear()
    metadata = batch.build(**gpu_facts(batch))
    assert metadata.hk.mine.gathered
    assert metadata.hk.theirs.gathered
    assert OnGpu.reads == []
