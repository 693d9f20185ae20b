"""Checks the options of `hk-backend bench linear`, and runs the sweep over layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hk_backend.lab.bench.gemm.layers import weights
from hk_backend.lab.bench.linear.measure import LinearCase, LinearTiming, cases, measure
from hk_backend.lab.bench.linear.weights import FORMATS
from hk_backend.lab.options import parse_names, parse_numbers

LAYERS = {
    "smollm2-qkv": (960, 576),
    "smollm2-o": (576, 576),
    "smollm2-gate_up": (3072, 576),
    "smollm2-down": (576, 1536),
    **weights("llama8b"),
}
"""Shapes `(n, k)` of the linear layers of SmolLM2-135M and Llama-3.1-8B, merged as in engines."""


@dataclass(frozen=True)
class LinearSweep:
    """The cases to measure, each with the weight in every format."""

    cases: Sequence[LinearCase]
    formats: Sequence[str]
    quantised_activations: bool
    rounds: int

    @classmethod
    def parse(
        cls,
        layers: str = "all",
        tokens: str = "1,4,16,256,1024",
        formats: str = "bf16,fp8_e4m3fn,mxfp8,mxfp4",
        weight_only: bool = False,
        rounds: int = 7,
    ) -> LinearSweep:
        """The sweep that comma-separated options describe.

        Raises:
            typer.BadParameter: an option's value is not valid; the message says what would be.
        """
        names = list(LAYERS) if layers == "all" else parse_names(layers, list(LAYERS), "--layers")
        grid = cases({name: LAYERS[name] for name in names}, parse_numbers(tokens, "--tokens"))
        return cls(grid, parse_names(formats, FORMATS, "--formats"), not weight_only, rounds)

    def run(self, on_case: Callable[[str], object]) -> Iterator[LinearTiming]:
        """Measure everything; yields one row for each case and format, failed ones included.

        `on_case` is called with a description of the next case.
        """
        for number, case in enumerate(self.cases, 1):
            on_case(f"{number}/{len(self.cases)}  {case}, {len(self.formats)} formats")
            yield from measure(case, self.formats, self.quantised_activations, self.rounds)
