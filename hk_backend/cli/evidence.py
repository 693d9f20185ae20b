"""Reports this machine's measurements for `hk-backend status` and `tune`.

For each kind of layer they show who computes it, and the times of HK and of the engine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hk_backend.config import ConfigError, read_config

if TYPE_CHECKING:
    from hk_backend.engine.evidence import Decision
    from hk_backend.terms.measurements import Machine, Measurements

NOTHING = "nothing yet: start the engine with HK_BACKEND=1, or run hk-backend tune MODEL"


@dataclass(frozen=True)
class Kept:
    """One kind of layer that was measured.

    Attributes:
        decision: who computes the layer, by the measured times.
        engine_version: version of the engine that was measured.
        machine: the machine that the file describes.
        file: path of the file of measurements.
    """

    decision: Decision
    engine_version: str
    machine: Machine
    file: str

    @property
    def by(self) -> str:
        """Who computes the layer; for attention, also which numbers of rows the engine keeps."""
        decision, engine = self.decision, self.decision.kind.engine
        if not decision.by_hk:
            return engine
        left = [str(each.rows) for each in decision.times if decision.why_not(each.rows)]
        if decision.kind.operator == "linear" or not left:
            return "HK"
        return f"HK, but {engine} at {', '.join(left)} rows"

    def lines(self) -> Iterator[str]:
        """Two lines: the layer and who computes it; both times, by rows."""
        from hk_backend.engine.evidence.decision import duration

        kind = self.decision.kind
        times = (
            f"{each.rows}: {duration(each.ours)} / {duration(each.theirs)}"
            for each in self.decision.times
        )
        unmeasured = self.decision.unmeasured
        beyond = f"; took too long: {', '.join(map(str, unmeasured))}" if unmeasured else ""
        yield f"  {kind} ({kind.engine}: {kind.theirs}): by {self.by}"
        yield f"    {', '.join(times)}{beyond}"

    def as_json(self) -> dict[str, Any]:
        """Plain data; times in microseconds."""
        kind, decision = self.decision.kind, self.decision
        return {
            "operator": kind.operator,
            "engine": kind.engine,
            "engine_version": self.engine_version,
            "device": kind.device,
            "layer": kind.layer,
            "theirs": kind.theirs,
            "threads": self.machine.threads,
            "file": self.file,
            "by": self.by,
            "why": "" if decision.by_hk else decision.verdict.why,
            "times": [each.model_dump() for each in decision.times],
            "unmeasured": list(decision.unmeasured),
        }


def _shares(counts: Counter[str]) -> str:
    """Counts in words: `left to vLLM (5 kinds of layer)`, `HK (2 kinds of layer), left to ...`."""
    first, *others = sorted(counts.items())
    named = f"{first[0]} ({first[1]} {'kind' if first[1] == 1 else 'kinds'} of layer)"
    return ", ".join([named, *(f"{by} ({count})" for by, count in others)])


@dataclass(frozen=True)
class Evidence:
    """Measurements of this machine with the installed versions, and whether they decide.

    Attributes:
        kinds: every measured kind of layer, with any number of threads.
        overruled: reason why the environment decides instead; empty: the times decide.
    """

    kinds: Sequence[Kept]
    overruled: str = ""

    def summary(self, route: str) -> str:
        """One line on who computes the layers of `route`, by dtype or format of the layers."""
        if self.overruled:
            return "every layer that HK covers"
        counts: dict[str, Counter[str]] = {}
        for kept in self.kinds:
            if kept.decision.kind.operator == route:
                dtype = kept.decision.kind.layer.split(" ")[0].rstrip(",")
                by = "HK" if kept.decision.by_hk else f"left to {kept.decision.kind.engine}"
                counts.setdefault(dtype, Counter())[by] += 1
        if not counts:
            return "who is faster computes a layer, by times taken when a model is first loaded"
        parts = [f"{dtype} {_shares(each)}" for dtype, each in sorted(counts.items())]
        return f"measured here: {'; '.join(parts)}"

    def lines(self) -> Iterator[str]:
        """The lines that status prints."""
        if self.overruled:
            yield f"evidence     not asked: {self.overruled}"
        elif not self.kinds:
            yield f"evidence     {NOTHING}"
        heading = None
        for kept in self.kinds:
            here = kept.machine
            engine = f"{kept.decision.kind.engine} {kept.engine_version}"
            threads = "1 thread" if here.threads == 1 else f"{here.threads} threads"
            found = f"{here.processor}, {threads}, {engine}, in {kept.file}"
            if found != heading:
                heading = found
                yield f"measured     {found}"
                yield "  rows: HK / the engine"
            yield from kept.lines()

    def as_json(self) -> dict[str, Any]:
        return {"overruled": self.overruled, "kinds": [kept.as_json() for kept in self.kinds]}


def kept_here() -> Evidence:
    """All measurements of this processor with this torch and this hk_backend."""
    try:
        config = read_config()
    except ConfigError:
        return Evidence([])
    from hk_backend.terms.measurements import Measurements

    overruled = ""
    if config.evidence == "ignore":
        overruled = "HK_EVIDENCE=ignore"
    elif config.device != "auto":
        overruled = f"HK_DEVICE={config.device} names a device"
    files = list(_files())
    if isinstance(config.evidence, Measurements):
        files.insert(0, (os.environ["HK_EVIDENCE"], config.evidence))
    return Evidence([kept for file, found in files for kept in _kinds(file, found)], overruled)


def _files() -> Iterator[tuple[str, Measurements]]:
    """Yields this machine's files of measurements, with any number of threads."""
    from hk_backend.measurements import folder

    try:
        here = machine_of_engines()
    except Exception:  # torch is missing, or fails to see a GPU
        return
    for path, found in folder.every():
        if folder.is_same(found.machine, here):
            yield str(path), found


def machine_of_engines() -> Machine:
    """The machine that an engine would measure here: the GPU if torch sees one, else the CPU."""
    import torch

    from hk_backend.measurements.machine import this_machine

    return this_machine("hip" if torch.cuda.is_available() else "cpu")


def _kinds(file: str, found: Measurements) -> Iterator[Kept]:
    from hk_backend.engine.evidence.decision import decision_of

    for layer in sorted(found.layers, key=lambda each: (each.engine, each.operator, each.layer)):
        yield Kept(decision_of(layer), layer.engine_version, found.machine, file)
