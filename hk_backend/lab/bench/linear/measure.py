"""Times `linear` against torch's on the same shapes, and against the machine's limits.

One case is `[tokens, k] @ [n, k].T` with bfloat16 activations. These candidates alternate:
Torch's linear in float32 and in bfloat16.
HK with the weight in each format.
One large float32 matmul.
For few tokens, the three bounds of a kernel that streams the weight once (`bounds.py`).

With a weight in the caches every candidate would look too fast. With few tokens each candidate
therefore cycles through copies of its weight, `FOOTPRINT` bytes in total.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch.nn.functional import linear as torch_linear

from hk_backend import reference
from hk_backend.lab.bench import settings
from hk_backend.lab.bench.linear.bounds import bound_calls
from hk_backend.lab.bench.linear.weights import Weight, copy_of, make_weight
from hk_backend.lab.bench.stopwatch import Timing, alternate
from hk_backend.lab.tables import without_nan
from hk_backend.ops import linear

FOOTPRINT = 1 << 30
"""Bytes of a weight's copies: more than the last-level caches of the machines that we know."""
FEW_TOKENS = 16
"""Most tokens for which the weight's bytes limit the speed, and the bounds are measured."""
CHECKED_COLUMNS = 48
CALLS = ("read", "multiply", "unpack")


@dataclass(frozen=True)
class LinearCase:
    """One shape; `layer` is its name in `--layers`."""

    layer: str
    tokens: int
    n: int
    k: int

    @property
    def flops(self) -> int:
        return 2 * self.tokens * self.n * self.k

    @property
    def few(self) -> bool:
        return self.tokens <= FEW_TOKENS

    def __str__(self) -> str:
        return f"M={self.tokens} {self.n}x{self.k}"


@dataclass
class LinearTiming:
    """HK's result with one weight format on one case; milliseconds of one call, from medians.

    `error`: reason why HK was not measured; every number is missing then. `read_ms`, `multiply_ms`,
    `unpack_ms`: milliseconds of reading the packed bytes alone, of the multiply-adds alone, and of
    expanding the weight to float32 in registers alone.
    """

    case: LinearCase
    format: str
    activations: str
    weight_bytes: int = 0
    hk_ms: float = float("nan")
    fp32_ms: float = float("nan")
    bf16_ms: float = float("nan")
    hk_bf16_ms: float = float("nan")
    matmul_gflops: float = float("nan")
    read_ms: float = float("nan")
    multiply_ms: float = float("nan")
    unpack_ms: float = float("nan")
    spread: float = float("nan")
    error: str = ""
    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def gflops(self) -> float:
        return self.case.flops / self.hk_ms / 1e6

    @property
    def gb_per_s(self) -> float:
        """Packed bytes of the weight over the time of a call, in GB/s."""
        return self.weight_bytes / self.hk_ms / 1e6

    @property
    def bound(self) -> str:
        """Name of the slowest of the three bounds, which limits every kernel."""
        return max(CALLS, key=lambda name: float(getattr(self, f"{name}_ms")))

    @property
    def ratios(self) -> dict[str, float]:
        """HK's speed over another's (above 1 is a win), or over the bound's."""
        return {
            "hk/fp32": self.fp32_ms / self.hk_ms,
            "hk/bf16": self.bf16_ms / self.hk_ms,
            "hk/matmul": self.gflops / self.matmul_gflops,
            "hk/bound": getattr(self, f"{self.bound}_ms") / self.hk_ms,
            "format/bf16": self.hk_bf16_ms / self.hk_ms,
        }

    def as_json(self) -> dict[str, Any]:
        data = asdict(self)
        case = data.pop("case")
        rates = {"gflops": self.gflops, "gb_per_s": self.gb_per_s}
        bound = {} if self.error or not self.case.few else {"bound": self.bound}
        return without_nan({**case, **data, **rates, **self.ratios, **bound})


def cases(layers: dict[str, tuple[int, int]], tokens: Sequence[int]) -> list[LinearCase]:
    """All cases of the layers and numbers of tokens, tokens innermost."""
    return [LinearCase(name, m, *layers[name]) for name, m in itertools.product(layers, tokens)]


def measure(
    case: LinearCase, formats: Sequence[str], quantised_activations: bool, rounds: int
) -> Iterator[LinearTiming]:
    """Time `case` with the weight in each of `formats`, all in one alternation.

    A format whose result does not match its weight, or that raises, becomes a row with `error`.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(case.tokens, case.k, generator=generator).bfloat16()
    dense = (torch.randn(case.n, case.k, generator=generator) / case.k**0.5).bfloat16()
    square = torch.randn(settings.MATMUL_SIZE, settings.MATMUL_SIZE)
    calls: dict[str, Callable[[], object]] = {
        "fp32": _in_turn(partial(torch_linear, x.float()), _copies(dense.float(), case)),
        "bf16": _in_turn(partial(torch_linear, x), _copies(dense, case)),
        "matmul": lambda: square @ square,
    }
    weights: dict[str, Weight] = {}
    errors: dict[str, str] = {}
    for name in formats:
        try:
            weights[name] = weight = make_weight(dense, name, quantised_activations)
            inputs = x.to(weight.input_dtype)
            errors[name] = difference(linear(inputs, weight.packed), inputs, weight)
        except (ValueError, RuntimeError) as error:
            errors[name] = str(error)
        if errors[name]:
            continue
        more = FOOTPRINT // weight.packed.nbytes if case.few else 0
        copies = [weight.packed, *(copy_of(weight.packed) for _ in range(more))]
        calls[f"hk {name}"] = _in_turn(partial(linear, inputs), copies)
        if case.few:
            calls |= {f"{bound} {name}": call for bound, call in bound_calls(copies, case.tokens)}
    timings = alternate(calls, rounds)
    for name in formats:
        if errors[name]:
            yield LinearTiming(case, name, "", error=errors[name])
        else:
            yield _row(case, name, weights[name], timings)


def difference(out: torch.Tensor, x: torch.Tensor, weight: Weight) -> str:
    """Reason why `out` differs from `x @ weight.T` by more than rounding; empty if it does not.

    Only the first columns are compared. The limit allows for the rounding of the output and of K
    additions in float32, with errors of random signs.
    """
    expected = reference.linear(
        x,
        weight.codes[:CHECKED_COLUMNS],
        weight.format,
        None if weight.scales is None else weight.scales[:CHECKED_COLUMNS],
        activations=weight.packed.activations,
    )
    actual = out[:, :CHECKED_COLUMNS].double()
    error = float((actual - expected).norm() / expected.norm())
    limit = torch.finfo(out.dtype).eps + math.sqrt(x.shape[1]) * torch.finfo(torch.float32).eps / 2
    return "" if error <= limit else f"differs from the reference by {error:.1e}, limit {limit:.1e}"


def _row(case: LinearCase, name: str, weight: Weight, timings: dict[str, Timing]) -> LinearTiming:
    def ms(candidate: str) -> float:
        return 1e3 * timings[candidate].median if candidate in timings else float("nan")

    kept = [key for key in timings if key in ("fp32", "bf16", "matmul") or key.endswith(f" {name}")]
    return LinearTiming(
        case,
        name,
        weight.packed.activations,
        weight_bytes=weight.packed.nbytes,
        hk_ms=ms(f"hk {name}"),
        fp32_ms=ms("fp32"),
        bf16_ms=ms("bf16"),
        hk_bf16_ms=ms("hk bf16"),
        matmul_gflops=settings.MATMUL_FLOPS / ms("matmul") / 1e6,
        read_ms=ms(f"read {name}"),
        multiply_ms=ms(f"multiply {name}"),
        unpack_ms=ms(f"unpack {name}"),
        spread=timings[f"hk {name}"].spread,
        samples={key: timings[key].samples for key in kept},
    )


def _copies(weight: torch.Tensor, case: LinearCase) -> list[torch.Tensor]:
    more = FOOTPRINT // weight.nbytes if case.few else 0
    return [weight, *(weight.clone() for _ in range(more))]


def _in_turn(call: Callable[[Any], object], weights: Sequence[Any]) -> Callable[[], object]:
    """A call of `call` on the next of `weights`, which take turns."""
    turn = itertools.cycle(weights)
    return lambda: call(next(turn))
