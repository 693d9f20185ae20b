"""Times launches of gemm kernels on a GPU, replayed in a graph like an engine's.

Launches follow each other without a pause, each with a weight that is no longer in a cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

import torch

from hk_backend import reference
from hk_backend.devices.hip import linear
from hk_backend.devices.hip.device import HipDevice, hip_device
from hk_backend.devices.hip.linear_quantisation import quantisation
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_operands import MX_ELEMENTS, Operands
from hk_backend.lab.bench.gemm.timers import Problem
from hk_backend.terms.linear_arguments import LinearArguments, PackWeightArguments
from hk_backend.terms.measurements import MEASURED, Source
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import FP8_BLOCK

FOOTPRINT = 1 << 30
"""Bytes of the weights that take turns: four times the last-level cache of an MI355X."""
LAUNCHES = 24
"""Fewest launches that are timed together."""
MOST_COPIES = 512
"""Most copies of one weight."""
ROUNDS = 9

Call = Callable[[], None]
Watch = Callable[[Sequence[Call]], float]
"""Function that times several calls, each of which enqueues one launch: mean microseconds."""
BF16 = torch.bfloat16
DTYPES = {"bf16": BF16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
FORMATS = {"bf16": "bf16", "f16": "fp16", "e4m3": "fp8_e4m3fn"}
"""HK's weight formats, by the kernels' name for the type of elements."""


def by_graph(calls: Sequence[Call]) -> float:
    """Mean microseconds of a call, by events of the GPU: the median of several graph replays."""
    for call in calls[:2]:  # load and allocate what is needed once
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for _ in range(1 + ROUNDS):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        times.append(began.elapsed_time(ended) * 1e3 / len(calls))
    return float(median(times[1:]))


def this_gpu() -> Gpu:
    """The GPU that torch works on. Raises `DeviceError` if there is none."""
    return Gpu(hip_device(), torch.cuda.get_device_name())


class Gpu:
    """A timer of launches on the GPU that torch works on.

    Args:
        name: the driver's name of the GPU.
        footprint: bytes of the weights that take turns.
    """

    source: Source = MEASURED
    at_once = 1

    def __init__(
        self, device: HipDevice, name: str, watch: Watch = by_graph, footprint: int = FOOTPRINT
    ) -> None:
        self.arch = device.catalogue.arch
        self.name = device.name
        self.device = name
        self._hip = device
        self._index = device.memory.current_index()
        self.compute_units = device.compute_units(self._index)
        self._watch = watch
        self._footprint = footprint

    def microseconds(self, entry: KernelEntry, splits: int, problem: Problem) -> float:
        verdict = self._hip.verify(linear.OPERATOR, entry, self._index)
        if not verdict:
            raise RuntimeError(verdict.why)
        of = self._arguments(problem)
        return self._time(
            self._launch(entry, splits, replace(of, weight=replace(of.weight, data=data)))
            for data in self._copies(of.weight.data)
        )

    def _copies(self, weight: torch.Tensor) -> Iterator[torch.Tensor]:
        """Enough copies that the first is in no cache any more when its turn comes again."""
        more = min(-(-self._footprint // weight.nbytes), MOST_COPIES) - 1
        return itertools.chain((weight,), (weight.clone() for _ in range(more)))

    def _time(self, calls: Iterable[Call]) -> float:
        each = list(calls)
        turn = itertools.islice(itertools.cycle(each), max(LAUNCHES, len(each)))
        return self._watch(list(turn))

    def _launch(self, entry: KernelEntry, splits: int, of: LinearArguments) -> Call:
        call = replace(linear.OPERATOR.prepare(of, self._hip.catalogue), kernels=(entry,))
        call = linear.split(call, self._hip.gpu(self._index), splits)
        return lambda: self._hip.launch(call, self._index)

    def _arguments(self, problem: Problem) -> LinearArguments:
        """Arguments made in the operator's way, of random numbers, since power depends on them."""
        of, m, n, k = problem.format, problem.m, problem.n, problem.k
        target = self._hip.memory.torch_device(self._index)
        x = torch.randn(m, k, device=target).to(torch.float16 if of.activations == "f16" else BF16)
        weight = self._weight(of, n, k, target)
        arguments = LinearArguments(x, weight, None, x.new_empty(m, n))
        quantise = quantisation(arguments)
        if quantise is None:
            return arguments
        self._hip.run(quantise)
        return replace(arguments, x=quantise.codes, x_scales=quantise.scales)

    def _weight(self, of: Operands, n: int, k: int, target: torch.device) -> PackedWeight:
        if of.weights_are_mx:
            return self._mx_weight(of, n, k, target)
        format = FORMATS[of.weights]
        rounding = "token_block" if of.scales == "blocks" else "token"
        activations = rounding if of.activations == "e4m3" else "none"
        rows = torch.randn(n, k, device=target).to(DTYPES[of.weights])
        blocks = (-(-n // FP8_BLOCK), -(-k // FP8_BLOCK)) if of.scales == "blocks" else None
        scales = None if blocks is None else torch.ones(blocks, device=target)
        factors = torch.ones(n, device=target) if of.weights == "e4m3" else None
        data = torch.empty(self._hip.packed_bytes(format, n, k), dtype=torch.uint8, device=target)
        self._hip.run(PackWeightArguments(rows, format, n, k, None, factors, activations, data))
        return PackedWeight(data, factors, scales, None, format, n, k, activations, self.arch)

    def _mx_weight(self, of: Operands, n: int, k: int, target: torch.device) -> PackedWeight:
        names = {element: name for name, element in MX_ELEMENTS.items()}
        format, x = names[of.weights], names.get(of.activations, "none")
        activations = "mx" if x == format and of.activations_are_mx else x
        codes, scales = reference.quantize_mx(torch.randn(n, k), format)
        codes, scales = codes.to(target), scales.to(target)
        data = torch.empty(self._hip.packed_bytes(format, n, k), dtype=torch.uint8, device=target)
        self._hip.run(PackWeightArguments(codes, format, n, k, scales, None, activations, data))
        return PackedWeight(data, None, None, None, format, n, k, activations, self.arch)
