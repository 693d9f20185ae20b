"""Decides who computes a kind of layer: by a known answer, else by a contest.

An answer holds for the process, and through `hk_backend.measurements` for later starts.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field

import torch

from hk_backend import machine
from hk_backend.config import get_config
from hk_backend.engine.evidence import modelling
from hk_backend.engine.evidence.contest import Contest, NoContest, Unserved
from hk_backend.engine.evidence.decision import Decision, Kind, decision_of, duration
from hk_backend.engine.evidence.measuring import Budget, measure
from hk_backend.engine.evidence.ranks import ALONE, Ranks
from hk_backend.engine.evidence.stopwatch import stopwatch_for
from hk_backend.measurements import folder
from hk_backend.measurements.machine import this_machine
from hk_backend.terms.measurements import Machine, MeasuredLayer, Measurements
from hk_backend.terms.verdict import refused

logger = logging.getLogger(__name__)

MODELLED = "modelled, the engine's kernel is not known"
"""Note on layers of an emulated GPU whose time in the engine is unknown."""
BY_A_CLOCK = "modelled"
"""Note on layers of an emulated GPU whose times are both modelled."""


@dataclass
class Loading:
    """The measurements for the model that this process is loading.

    Attributes:
        disturbed: number of kinds that were measured while other processes had the cores.
    """

    budget: Budget = field(default_factory=Budget)
    seconds: float = 0.0
    measured: dict[Kind, Decision] = field(default_factory=dict)
    disturbed: int = 0
    kept: dict[Kind, Decision] = field(default_factory=dict)


@dataclass
class Process:
    """The knowledge of this process.

    Attributes:
        known: decisions by kind and by machine, which includes its number of threads.
        loading: measurements of the current model; `say_measured` resets them.
        sealed: reason why nothing may be measured any more; empty while models are loaded.
    """

    known: dict[tuple[Kind, Machine], Decision] = field(default_factory=dict)
    loading: Loading = field(default_factory=Loading)
    sealed: str = ""


process = Process()


def decide(kind: Kind, contest: Callable[[], Contest], ranks: Ranks = ALONE) -> Decision:
    """Decides who computes the layers of a kind, while a model is loaded and has its weights.

    Args:
        contest: makes the contest, if the kind has to be measured; may raise `NoContest`. Only rank
            0 calls it.
        ranks: processes with the model's shards. Each call of `decide` makes exactly one broadcast.

    Returns:
        rank 0's answer. A contest that fails leaves the layer to the engine.
    """
    decision = _decide(kind, contest) if ranks.rank == 0 else Decision(kind)
    return ranks.broadcast(decision)


def requests_run() -> None:
    """Stops all measuring from now on, as requests run and a contest would disturb them."""
    process.sealed = "requests run already"


def say_measured(engine: str, log: logging.Logger) -> None:
    """Logs one line on what was measured for the loaded model, and resets the measurements."""
    loading, process.loading = process.loading, Loading()
    if loading.measured:
        said = f"measured {_kinds(loading.measured)} in {loading.seconds:.1f} s"
        decisions = loading.measured.values()
    elif loading.kept:
        said = f"{_kinds(loading.kept)}, measured before"
        decisions = loading.kept.values()
    else:
        return
    by_hk = sum(each.by_hk for each in decisions)
    if loading.disturbed:
        said += f", {loading.disturbed} of them not kept because this machine is busy"
    log.info(
        "hk_backend: %s: %d by HK, %d by %s (hk-backend status shows both times)",
        said,
        by_hk,
        len(decisions) - by_hk,
        engine,
    )


def _kinds(kinds: Iterable[Kind]) -> str:
    """Text for kinds of layers: "5 kinds of linear layers and 1 of attention"."""
    words = {"linear": "linear layers"}
    counts = Counter(words.get(kind.operator, kind.operator) for kind in kinds)
    parts: list[str] = []
    for what, count in sorted(counts.items(), reverse=True):
        noun = "" if parts else " kind" if count == 1 else " kinds"
        parts.append(f"{count}{noun} of {what}")
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _decide(kind: Kind, contest: Callable[[], Contest]) -> Decision:
    """The answer of this process, independent of ranks."""
    config = get_config()
    if config.evidence == "ignore":
        return Decision(kind, note="HK_EVIDENCE=ignore")
    if kind.device.startswith("emulated"):
        return _modelled(kind, contest)
    if config.device != "auto":
        return Decision(kind, note=f"asked for by name: HK_DEVICE={config.device}")
    where = this_machine(kind.device)
    if (kind, where) not in process.known:
        process.known[kind, where] = _found(kind, where) or _measured(kind, where, contest)
    return process.known[kind, where]


def _modelled(kind: Kind, contest: Callable[[], Contest]) -> Decision:
    """The answer on an emulated GPU, where a clock may know how long the engine's kernels take."""
    if process.sealed or not modelling.has_clock(kind.operator, kind.device):
        return Decision(kind, note=MODELLED)
    where = this_machine(kind.device)
    if (kind, where) not in process.known:
        process.known[kind, where] = _by_a_clock(kind, contest)
    return process.known[kind, where]


def _by_a_clock(kind: Kind, contest: Callable[[], Contest]) -> Decision:
    """The answer of both sides' modelled times, which are logged."""
    logger.info("hk_backend: %s: modelling HK and %s, which may take minutes", kind, kind.theirs)
    try:
        with torch.no_grad(), torch.random.fork_rng([]):
            times, unmeasured = modelling.modelled(contest(), kind.device)
    except NoContest as error:
        return Decision(kind, note=f"{kind.engine} cannot compute it: {error}")
    except Unserved as error:
        return _left(kind, str(error))
    except Exception as error:  # any error of the engine or HK
        return _failed(kind, error)
    for each in times:
        said = "hk_backend: %s, modelled for %d rows: HK %s, %s %s"
        both = duration(each.ours), kind.theirs, duration(each.theirs)
        logger.info(said, kind, each.rows, *both)
    return Decision(kind, times, unmeasured, note=BY_A_CLOCK if times else MODELLED)


def _found(kind: Kind, where: Machine) -> Decision | None:
    """The answer of an earlier start, from the file of HK_EVIDENCE, else from the folder."""
    named = get_config().evidence
    for source in ([named] if isinstance(named, Measurements) else []) + [folder.read(where)]:
        layer = source.find(key_of(kind))
        if layer is not None:
            process.loading.kept[kind] = decision_of(layer)
            return process.loading.kept[kind]
    return None


def _measured(kind: Kind, where: Machine, contest: Callable[[], Contest]) -> Decision:
    """The answer of a contest, which is kept; or a refusal if none can run."""
    why = process.sealed or ("a graph is being captured" if _is_capturing() else "")
    if why:
        return _left(kind, f"not measured: {why}")
    loading = process.loading
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        stopwatch = stopwatch_for(kind.operator, kind.device)
    except Exception as error:  # it allocates, and memory may have run out
        return _failed(kind, error)
    began = stopwatch.now()
    try:
        # contests draw numbers without changing those that the engine will draw
        with torch.no_grad(), torch.random.fork_rng(devices):
            made = contest()
            share = loading.budget.share(stopwatch.now() - began)
            times, unmeasured = measure(made, stopwatch, share)
    except NoContest as error:
        return Decision(kind, note=f"{kind.engine} cannot compute it: {error}")
    except Unserved as error:
        return _left(kind, str(error))
    except Exception as error:  # any error of the engine or HK
        return _failed(kind, error)
    finally:
        seconds = stopwatch.now() - began
        loading.seconds += seconds
        loading.budget.spend(seconds)
    layer = MeasuredLayer(
        **asdict(kind), engine_version=version_of(kind.engine), times=times, unmeasured=unmeasured
    )
    if stopwatch.disturbed:  # the times hold only for this process
        loading.disturbed += 1
    else:
        folder.add(Measurements(machine=where, layers=(layer,)))
    loading.measured[kind] = decision_of(layer)
    return loading.measured[kind]


def _failed(kind: Kind, error: Exception) -> Decision:
    """The answer where an error has ended the measurement."""
    logger.warning("hk_backend: %s: not measured", kind, exc_info=error)
    return _left(kind, f"not measured: {type(error).__name__}: {error}")


def _left(kind: Kind, why: str) -> Decision:
    return Decision(kind, given=refused(f"{kind}: {why}"))


def key_of(kind: Kind) -> tuple[str, ...]:
    """The kind's `MeasuredLayer.key`, for the installed engine."""
    fields = (kind.operator, kind.engine, kind.device, kind.layer, kind.theirs)
    return (*fields, version_of(kind.engine))


def version_of(engine: str) -> str:
    """The version of an engine; "none" if it is not installed."""
    return machine.version_of(*machine.ENGINES.get(engine, (engine,))) or "none"


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
