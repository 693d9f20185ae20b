"""A kind of layer, and the rule for who computes it, from HK's and the engine's times."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from hk_backend.terms.measurements import MeasuredLayer, Times
from hk_backend.terms.verdict import SERVED, Verdict, refused

NOISE = 1.03
"""HK counts as slower only if its time is more than this many times the engine's."""
GAIN = 1.03
"""HK counts as faster only if the engine's time is at least this many times HK's."""
SLOWER = "faster without HK"
"""Beginning of the reason why a layer stays with the engine."""


def judge(times: Sequence[Times]) -> str:
    """Applies the rule: HK must be slower nowhere, and faster for at least one number of rows.

    Args:
        times: at least one.

    Returns:
        the reason why the engine is to compute the layer, without its name; empty if HK is to.
    """
    worst = max(times, key=lambda each: each.ours / each.theirs)
    if worst.ours > NOISE * worst.theirs:
        return _both(worst)
    best = min(times, key=lambda each: each.ours / each.theirs)
    if best.ours * GAIN > best.theirs:
        return f"no gain, {_both(best)}"
    return ""


def _both(times: Times) -> str:
    rows = "row" if times.rows == 1 else "rows"
    return f"{times.rows} {rows}: HK {duration(times.ours)}, the engine {duration(times.theirs)}"


def duration(microseconds: float) -> str:
    """Text of a time with three significant digits, in us, ms or s."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} us"


@dataclass(frozen=True)
class Kind:
    """One kind of layer in one engine, shared by all layers that are equally fast.

    Attributes:
        operator: the route: "linear", "attention" or "decode".
        engine: "vLLM" or "SGLang".
        device: name of HK's device, for example "cpu:avx512" or "hip:gfx950".
        layer: readable text of everything else that decides the speed: "bf16 6144x4096 from
            bfloat16", "bfloat16, 32/8 heads of 128, causal".
        theirs: the engine's own way to compute it: "UnquantizedLinearMethod", "CPU_ATTN".
    """

    operator: str
    engine: str
    device: str
    layer: str
    theirs: str

    def __str__(self) -> str:
        return f"{self.operator} {self.layer}"


@dataclass(frozen=True)
class Decision:
    """Who computes a kind of layer, and why.

    Attributes:
        times: measured times, ascending in rows; empty if `given` decides.
        unmeasured: numbers of rows that would have taken too long; `times` decides for them, too.
        given: the answer if nothing was measured.
        note: text for people: why nothing was measured, or where the times are from.
    """

    kind: Kind
    times: tuple[Times, ...] = ()
    unmeasured: tuple[int, ...] = ()
    given: Verdict = SERVED
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """Whether HK serves the layer at every number of rows, for layers decided once."""
        return self._verdict(self.times)

    @property
    def somewhere(self) -> Verdict:
        """Whether HK serves the layer for some number of rows; if not, the refusal of `verdict`."""
        if not self.times or any(not judge((each,)) for each in self.times):
            return self._verdict(())
        return self.verdict

    @property
    def by_hk(self) -> bool:
        """Whether HK computes anything of this kind. Attention is decided anew at each step."""
        return (self.verdict if self.kind.operator == "linear" else self.somewhere).ok

    def why_not(self, rows: int) -> str:
        """Reason why the engine computes a step with this many rows; empty if HK does.

        The measured numbers of rows nearest to `rows` decide, below and above it.
        """
        if not self.times:
            return self.given.why
        measured = [each.rows for each in self.times]
        below = max(bisect_right(measured, rows) - 1, 0)
        above = min(bisect_left(measured, rows), len(measured) - 1)
        return self._verdict(self.times[below : above + 1]).why

    def _verdict(self, times: Sequence[Times]) -> Verdict:
        if not times:
            return self.given
        why = judge(times)
        source = f" ({self.note})" if self.note else ""
        return refused(f"{SLOWER}: {self.kind}: {why}{source}") if why else SERVED


def decision_of(layer: MeasuredLayer) -> Decision:
    """Applies the rule to the times in a file."""
    kind = Kind(layer.operator, layer.engine, layer.device, layer.layer, layer.theirs)
    return Decision(kind, layer.times, layer.unmeasured)
