"""Whether a linear layer is faster with HK on a GPU, by what is known of both.

A layer is routed once, for any number of rows: its weight is packed, and the engine's own kernel
cannot read it. So it is served only where HK is faster for few rows and for many:

- wherever it is known what the engine's kernel takes, HK's time x 1.1 is at most that;
- that is known for at least one number of rows up to 16 and for one above, or the facts say that
  nobody has tuned the engine's kernel for the layer;
- up to 16 rows, for 1 and for 16 always, HK was measured on this GPU (HK_TUNING): no model decides
  over a user's decode.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hk_backend.engine.linear import stock
from hk_backend.kernels.catalogue import Catalogue, Family
from hk_backend.kernels.gemm_choice import choose
from hk_backend.kernels.gemm_formats import LAYERS, Format, family, format_of
from hk_backend.kernels.gemm_plan import Candidate
from hk_backend.kernels.tuning import Tuning, Weight
from hk_backend.kernels.tuning_fields import MEASURED
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import SERVED, Verdict, refused
from hk_backend.terms.weight_format import FORMATS

DECODE = 16
"""Rows, up to which only measurements count."""
JUDGED = (1, DECODE, 4096)
"""Rows that are judged whatever is known of the engine's kernel."""
SLOWER, NO_EVIDENCE = "faster without HK", "no evidence"
RULE = "HK's time x 1.1 must be at most stock's"


@dataclass(frozen=True)
class Layer:
    """One kind of layer on one GPU.

    `format`: of `gemm_formats.LAYERS`. `family`: the kernels that would serve it, at least one.
    `tuning`: of HK_TUNING.
    """

    format: str
    n: int
    k: int
    family: Family
    compute_units: int
    tuning: Tuning

    def __str__(self) -> str:
        return f"{self.format} {self.n}x{self.k}"

    @property
    def of(self) -> Format:
        """What its kernels multiply by what."""
        return format_of(self.family[0])

    @property
    def untuned(self) -> str:
        """Who says that nobody has tuned the engine's kernel for it; or nothing."""
        return stock.untuned(self.format, self.n, self.k)

    def ours(self, m: int) -> Candidate:
        """What HK would launch for M rows."""
        return choose(self.family, m, self.n, self.k, self.compute_units, self.tuning)

    def theirs(self) -> dict[int, stock.Known]:
        """What the engine's own kernel takes, by rows: as measured here, else as published."""
        arch = self.family[0].arch
        weight = Weight(arch, self.compute_units, self.of, self.n, self.k)
        here = {
            line.m: stock.Known(line.stock_microseconds, f"{line.stock}, measured here")
            for line in self.tuning.lines.get(weight, ())
            if line.stock
        }
        return dict(sorted({**stock.known(self.format, self.n, self.k), **here}.items()))


@dataclass(frozen=True)
class Point:
    """Both for M rows; `theirs`: None: not known."""

    m: int
    ours: Candidate
    theirs: stock.Known | None

    @property
    def counts(self) -> bool:
        """Whether HK's figure is one that may decide."""
        return self.m > DECODE or self.ours.source == MEASURED

    @property
    def is_slower(self) -> bool:
        """Without 1.1, which is not exact as a float."""
        if self.theirs is None:
            return False
        return 11 * self.ours.microseconds > 10 * self.theirs.microseconds


def layer_of(
    request: LinearRequest, kernels: Catalogue, compute_units: int, tuning: Tuning
) -> Layer:
    """What `request` asks for, of formats that the kernels compute."""
    name = name_of(request)
    of = LAYERS[name]
    if name == "fp8_weight_only":
        activations = "f16" if request.dtype == torch.float16 else "bf16"
        of = Format(activations, of.weights, "blocks" if _in_blocks(request) else "vectors")
    return Layer(name, request.n, request.k, family(kernels, of), compute_units, tuning)


def name_of(request: LinearRequest) -> str:
    """Of `gemm_formats.LAYERS`, for a format that these kernels compute."""
    if not FORMATS[request.format].is_fp8:
        return request.format
    if request.activations == "none":
        return "fp8_weight_only"
    if _in_blocks(request):
        return "fp8_block"
    per_tensor = (request.scale_kind, request.activations) == ("tensor", "tensor")
    return "fp8_tensor" if per_tensor else "fp8_channel"


def _in_blocks(request: LinearRequest) -> bool:
    return request.scale_kind == "block" or request.activations == "token_block"


def points(layer: Layer) -> list[Point]:
    """What is known of both, in the order of M."""
    theirs = layer.theirs()
    return [Point(m, layer.ours(m), theirs.get(m)) for m in sorted({*theirs, *JUDGED})]


def judge(layer: Layer) -> Verdict:
    """Whether HK serves the layer; a refusal names both figures and who says so."""
    found = points(layer)
    for point in found:
        if point.counts and point.is_slower:
            return refused(f"{SLOWER}: {_both(layer, point)}: {RULE}")
    for point in found:
        if not point.counts:
            why = f"up to {DECODE} rows must be measured on this GPU (hk-backend tune, HK_TUNING)"
            return _no_evidence(layer, point, why)
    for few in (True, False):
        of_regime = [point for point in found if (point.m <= DECODE) is few]
        if not layer.untuned and not any(point.theirs for point in of_regime):
            which = f"up to {DECODE}" if few else f"of more than {DECODE}"
            return _no_evidence(layer, of_regime[0], f"a figure {which} rows of both is needed")
    return SERVED


def _no_evidence(layer: Layer, point: Point, why: str) -> Verdict:
    said = f"{NO_EVIDENCE}: {_both(layer, point)}: {why}; HK_EVIDENCE=ignore serves it"
    return refused(said)


def _both(layer: Layer, point: Point) -> str:
    ours = point.ours
    if point.theirs:
        theirs = f"{point.theirs.microseconds:.4g} us ({point.theirs.source})"
    else:
        theirs = f"is untuned ({layer.untuned})" if layer.untuned else "is not known"
    return (
        f"{layer}, M={point.m}: HK takes {ours.microseconds:.4g} us ({ours.source}), stock {theirs}"
    )
