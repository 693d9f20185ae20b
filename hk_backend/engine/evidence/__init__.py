"""Evidence: whether HK or the engine computes a layer, measured where it runs.

`contest.py`: both ways to compute a kind of layer.
`decision.py`: the kind of a layer, and the rule that decides by the times of both.
`deciding.py`: `decide()` finds a known or kept answer, or measures.
`measuring.py`: runs a contest within a budget.
`modelling.py`: both sides' modelled times, on an emulated GPU.
`stopwatch.py`: times one call, on the host or on a GPU.
`ranks.py`: lets all ranks of a model take one answer.

    kind = Kind("linear", "vLLM", "cpu:avx512", "bf16 6144x4096", "UnquantizedLinearMethod")
    decision = decide(kind, make_contest, ranks)
    decision.verdict             # for a layer that is decided once
    decision.why_not(rows)       # for a layer that is decided at each step
"""

from hk_backend.engine.evidence.contest import Call, Contest, NoContest, Unserved, prompts_up_to
from hk_backend.engine.evidence.deciding import MODELLED, decide, requests_run, say_measured
from hk_backend.engine.evidence.decision import SLOWER, Decision, Kind
from hk_backend.engine.evidence.modelling import planned
from hk_backend.engine.evidence.ranks import ALONE, Ranks, ranks_of

__all__ = [
    "ALONE",
    "MODELLED",
    "SLOWER",
    "Call",
    "Contest",
    "Decision",
    "Kind",
    "NoContest",
    "Ranks",
    "Unserved",
    "decide",
    "planned",
    "prompts_up_to",
    "ranks_of",
    "requests_run",
    "say_measured",
]
