"""Decode rows of a layer in a graph that the emulated GPU replays, as vLLM's runner does.

The runner captures a batch of one size. Before each replay it writes the rows of another step into
the same tensors, padded to that size, and has metadata built. No Python of a layer runs in a
replay.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from hk_vllm import sleeping
from hk_vllm.attention.lazy_metadata import is_built
from vllm.v1.worker.gpu_worker import Worker

from hk_backend.routing.routes import Tally, routes
from tests.devices.hip.device import OnTheHost
from tests.devices.hip.graph import Graph
from tests.integration.adapter import Environment
from tests.integration.hk_vllm.attention.batch import MAX_BLOCKS, SHAPE, Batch, Layer, Shape
from tests.integration.hk_vllm.restore import restored
from tests.integration.hk_vllm.rocm.parents import LAYER_PARENTS, Parent
from tests.integration.hk_vllm.rocm.rocm_layer import rocm_layer
from tests.integration.hk_vllm.sleeper import sleeper
from tests.integration.shared.attention.gpu import emulated_gpu
from tests.integration.shared.attention.rows import Row

pytestmark = [pytest.mark.usefixtures("small"), pytest.mark.triton]

REQUESTS, REPLAYS, FEW = 6, 200, 10
BY_NAME = {parent.name: parent for parent in LAYER_PARENTS}


@dataclass(frozen=True)
class Kind:
    """A kind of layer: its heads, more of vLLM's arguments, and these in the reference's words."""

    name: str = "plain"
    shape: Shape = SHAPE
    arguments: dict[str, Any] = field(default_factory=dict)
    mask: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


PLAIN, SLOPES = Kind(), [0.5, 0.25, 0.125, 0.0625]
D96 = Kind("d96", replace(SHAPE, head_size=96))
WINDOW = Kind(
    "d80 with a window",
    replace(SHAPE, head_size=80),
    {"per_layer_sliding_window": 20},
    {"sliding_window": 20},
)
ALIBI = Kind("alibi", SHAPE, {"alibi_slopes": SLOPES}, {"alibi_slopes": torch.tensor(SLOPES)})
CAP = Kind("cap", SHAPE, {"logits_soft_cap": 2.0}, {"logits_soft_cap": 2.0})
CASES = [
    ("rocm-attn", PLAIN, 0, REPLAYS),
    ("rocm-attn", PLAIN, 2, FEW),
    ("triton-nhd", PLAIN, 0, FEW),
    ("aiter-fa-shuffled", PLAIN, 0, FEW),
    ("rocm-attn", D96, 2, FEW),
    ("triton-nhd", WINDOW, 0, FEW),
    ("triton-nhd", ALIBI, 2, FEW),
    ("triton-nhd", CAP, 0, FEW),
]
"""Parent, kind of layer, drafts of a row, and number of replays."""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[OnTheHost]:
    with emulated_gpu(monkeypatch) as found:
        yield found


class Runner:
    """The tensors of a runner's padded batch, and HK's layer over them.

    Args:
        tokens: query tokens of each row.
    """

    def __init__(self, layer: Layer, tokens: int) -> None:
        self.layer, self.tokens = layer, tokens
        shape, size = layer.shape, REQUESTS * tokens
        self.query = torch.zeros(size, shape.num_heads, shape.head_size, dtype=layer.dtype)
        self.key = torch.zeros(size, shape.num_kv_heads, shape.head_size, dtype=layer.dtype)
        self.output = torch.zeros_like(self.query)
        self.facts = {
            "query_start_loc": torch.arange(0, size + 1, tokens, dtype=torch.int32),
            "seq_lens": torch.full((REQUESTS,), tokens, dtype=torch.int32),
            "block_table_tensor": torch.zeros(REQUESTS, MAX_BLOCKS, dtype=torch.int32),
            "slot_mapping": torch.zeros(size, dtype=torch.int64),
        }

    def common(self, batch: Batch) -> Any:
        """The metadata of a step, in the runner's own tensors."""
        real, tokens = len(batch.rows), batch.num_tokens
        starts = self.facts["query_start_loc"]
        starts[: real + 1] = torch.arange(0, tokens + 1, self.tokens)
        starts[real:] = tokens
        lengths = self.facts["seq_lens"]
        lengths[:real] = torch.tensor([row.length for row in batch.rows])
        lengths[real:] = 0
        self.facts["block_table_tensor"][:real] = batch.block_table
        self.query[:tokens] = batch.query[:tokens]
        return batch.common_metadata(
            **self.facts,
            query_start_loc_cpu=starts.clone(),
            seq_lens_cpu_upper_bound=lengths.clone(),
            num_reqs=REQUESTS,
            num_actual_tokens=REQUESTS * self.tokens,
            max_query_len=self.tokens,
            is_prefilling=torch.zeros(REQUESTS, dtype=torch.bool),
        )

    def forward(self, metadata: Any) -> None:
        call = self.query, self.key, self.key, self.layer.kv_cache, metadata
        self.layer.impl.forward(self.layer.module, *call, output=self.output)


def step(layer: Layer, tokens: int, seed: int) -> Batch:
    """A batch of up to `REQUESTS` rows of `tokens` new tokens, of any lengths."""
    draw = random.Random(seed)
    rows = [
        Row(tokens, draw.choice((1, 15, 16, 31, 32, 33, draw.randint(1, 180))), tokens > 1)
        for _ in range(draw.randint(1, REQUESTS))
    ]
    return Batch(layer, rows, seed, padding=0)


def captured(runner: Runner, device: OnTheHost) -> Graph:
    """A graph of a padded batch, made as an engine makes it."""
    layer, stream = runner.layer, device.memory.stream(0)
    warm_up = step(layer, runner.tokens, 0)
    runner.forward(layer.builder.build(0, runner.common(warm_up)))
    device.library.synchronise(stream)
    metadata = layer.builder.build_for_cudagraph_capture(runner.common(warm_up))
    runner.forward(metadata)  # as an engine warms a graph up
    device.library.synchronise(stream)
    graph = Graph(device.library, stream)
    with graph.capture():
        runner.forward(metadata)
    return graph


def replay(graph: Graph, runner: Runner, batch: Batch, **mask: Any) -> None:
    """Replays a graph with the rows of `batch`, and compares the result with the reference."""
    batch._write([row.length for row in batch.rows])
    runner.layer.builder.build(0, runner.common(batch))
    runner.output.fill_(torch.nan)
    graph.replay()
    batch.output[:] = runner.output[: batch.num_tokens]
    batch.check(**mask)
    assert runner.output[batch.num_tokens :].isnan().all(), "padding rows were written"


@pytest.mark.parametrize(
    ("parent", "kind", "drafts", "replays"),
    [(BY_NAME[name], *rest) for name, *rest in CASES],
    indirect=["parent"],
    ids=str,
)
def test_replays(
    parent: Parent,
    kind: Kind,
    drafts: int,
    replays: int,
    device: OnTheHost,
    environment: Environment,
) -> None:
    """Lengths, block tables and the number of real rows change between replays."""
    environment(HK_DEVICE="hip", HK_BACKEND="attention,decode")
    routes.reset()
    layer = rocm_layer(
        parent,
        wrapped=True,
        dtype=torch.bfloat16,
        drafts=drafts,
        shape=kind.shape,
        **kind.arguments,
    )
    runner = Runner(layer, 1 + drafts)
    graph = captured(runner, device)
    calls = device.library.launch_calls()
    for seed in range(1, replays + 1):
        replay(graph, runner, step(layer, runner.tokens, seed), **kind.mask)
    assert device.library.launch_calls() == calls, "a replay is no launch of HK's"
    counters = routes.counters("decode")
    assert counters.captured == Tally(1, REQUESTS * runner.tokens)
    assert counters.dummy == Tally(1, REQUESTS * runner.tokens)
    assert not counters.fallbacks


@pytest.mark.parametrize("parent", [BY_NAME["rocm-attn"]], indirect=True, ids=str)
def test_a_decode_step_has_its_parent_s_metadata(
    parent: Parent, device: OnTheHost, environment: Environment
) -> None:
    """A graph may hold the parent's launches, whose replay builds nothing that they read."""
    environment(HK_DEVICE="hip", HK_BACKEND="attention,decode")
    layer = rocm_layer(parent, wrapped=True, dtype=torch.bfloat16)
    built = layer.builder.build(0, Runner(layer, 1).common(step(layer, 1, 0)))
    assert built.hk.decode is not None, "HK computes it where Python calls the layer"
    assert is_built(built)
    assert not is_built(Batch(layer, [Row(5), Row(1, 9)]).build()), "no graph has a prefill"


@pytest.mark.parametrize("parent", [BY_NAME["rocm-attn"]], indirect=True, ids=str)
def test_copies_are_not_captured(
    parent: Parent, device: OnTheHost, environment: Environment
) -> None:
    """The parent's launches are captured if HK's would read copies, which nobody updates."""
    environment(HK_DEVICE="hip", HK_BACKEND="attention,decode")
    layer = rocm_layer(parent, wrapped=True, dtype=torch.bfloat16)
    runner = Runner(layer, 1)
    assert capture(layer, runner).decode is not None
    for name in ("seq_lens", "query_start_loc"):
        held = runner.facts[name]
        runner.facts[name] = held.long()
        assert capture(layer, runner).refusal == "graph capture"
        runner.facts[name] = held
    held = runner.facts["block_table_tensor"]
    runner.facts["block_table_tensor"] = held.T.contiguous().T
    assert capture(layer, runner).refusal == "graph capture"


def capture(layer: Layer, runner: Runner) -> Any:
    common = runner.common(step(layer, 1, 0))
    return layer.builder.build_for_cudagraph_capture(common).hk


@pytest.mark.parametrize("parent", [BY_NAME["triton-nhd"]], indirect=True, ids=str)
@pytest.mark.parametrize("kind", [PLAIN, ALIBI], ids=str)
def test_a_graph_after_a_sleep(
    parent: Parent,
    kind: Kind,
    device: OnTheHost,
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker sleeps, at level 2 or by discarding, and what HK's launches share is lost.

    A layer's slopes are lost, too. vLLM may give memory back in two parts. Before the second one,
    HK's memory may not be mapped.
    """
    environment(HK_DEVICE="hip", HK_BACKEND="attention,decode")
    routes.reset()
    layer = rocm_layer(parent, wrapped=True, dtype=torch.bfloat16, **kind.arguments)
    runner = Runner(layer, 1)
    graph, batch = captured(runner, device), Batch(layer, [Row(1, 180)] * REQUESTS, 1, padding=0)
    replay(graph, runner, batch, **kind.mask)
    [held] = device.workspaces._of.values()
    slopes = layer.impl._hk_layer_arguments["alibi_slopes"]

    def lose() -> None:
        if slopes is not None:
            slopes.zero_()
        held.arrived.fill_(3)
        held.partial.fill_(torch.nan)

    with restored():
        sleeping.install()
        worker = sleeper(torch.nn.Module(), lose, monkeypatch)
        Worker.sleep(worker, level=2)
        with pytest.raises(AssertionError):
            replay(graph, runner, batch, **kind.mask)
        lose()
        Worker.wake_up(worker, tags=["kv_cache"])
        assert held.arrived.all(), "the other part still sleeps"
        Worker.wake_up(worker, tags=["weights"])
        replay(graph, runner, batch, **kind.mask)
        Worker.discard(worker, ("weights", "kv_cache"))
        Worker.wake_up(worker, ["weights"])
        assert held.arrived.all()
        Worker.wake_up(worker)
        replay(graph, runner, batch, **kind.mask)
