"""Evidence: whether HK or the engine computes a layer, measured where it runs.

`kind.py`: the kind of a layer.
`contest.py`: both ways to compute a kind of layer.
`decision.py`: the rule that decides, by the times of both.
`deciding.py`: `decide()` finds a known or kept answer, or measures.
`measuring.py`: runs a contest within a budget.
`stopwatch.py`: times one call, on the host or on a GPU.
`ranks.py`: lets all ranks of a model take one answer.

    kind = Kind("linear", "vLLM", "cpu:avx512", "bf16 6144x4096", "UnquantizedLinearMethod")
    decision = decide(kind, make_contest, ranks)
    decision.verdict             # for a layer that is decided once
    decision.why_not(rows)       # for a layer that is decided at each step
"""

from hk_backend.engine.evidence.contest import Call, Contest, NoContest
from hk_backend.engine.evidence.deciding import MODELLED, decide, requests_run, say_measured
from hk_backend.engine.evidence.decision import SLOWER, Decision
from hk_backend.engine.evidence.kind import Kind
from hk_backend.engine.evidence.ranks import ALONE, Alone, Ranks

__all__ = [
    "ALONE",
    "MODELLED",
    "SLOWER",
    "Alone",
    "Call",
    "Contest",
    "Decision",
    "Kind",
    "NoContest",
    "Ranks",
    "decide",
    "requests_run",
    "say_measured",
]
