"""Linear layers in running engines, by the cases of shared/e2e/linear_cases.py.

Cases are checkpoints of other tools and of ours, rotated ones, faults, and weights that are
quantised while they are loaded.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hk_backend.quantize.recipe import RECIPES
from tests.integration.hk_sglang.e2e.catalogue import TWO_RANKS
from tests.integration.hk_sglang.linear_checkpoints import UNKNOWN
from tests.integration.shared.checkpoints import SCHEMES
from tests.integration.shared.checkpoints.ours import ONLINE
from tests.integration.shared.e2e.engine import Checkpoint, Engines
from tests.integration.shared.e2e.linear_cases import (
    SCHEME,
    Case,
    Faulty,
    Folded,
    How,
    OnGfx950,
    Rotated,
    RotatedWhileLoading,
    Serialized,
    refused,
)
from tests.integration.shared.e2e.linear_faults import EACH
from tests.integration.shared.e2e.linear_written import Online, Written
from tests.integration.shared.linear.devices import GFX950, unserved


def online(name: str, options: dict[str, str]) -> dict[str, object]:
    """Arguments with which a user gives options to `--quantization hk_...`."""
    config = {"quant_method": name, "serialized": False, **options}
    override = json.dumps({"quantization_config": config} if options else {})
    return {"quantization": name, "json_model_override_args": override}


HOW = How(
    engine={"disable_radix_cache": True, "max_total_tokens": 1024},
    alone={"max_running_requests": 1},
    ranks={"tp_size": 2},
    spawned=TWO_RANKS,
    dtype_of_ranks="bfloat16",  # spawned, nothing makes SGLang take such a checkpoint in float32
    online=online,
)
SERIALIZED = ("hk-fp8_e4m3fn", "hk-mxfp4", "ct-channel-token", "fp8-static", "fp8-block")
"""HK's own formats, and one for each of SGLang's ways that run on a CPU."""
ON_GFX950 = [
    name for name, scheme in SCHEMES.items() if name not in UNKNOWN and not unserved(GFX950, scheme)
]
CASES: list[Case] = [
    OnGfx950(HOW, "ct-channel-token", ranks=2),
    *(OnGfx950(HOW, name) for name in ON_GFX950),
    *(Faulty(HOW, *each) for each in EACH),
    *(Online(HOW, name) for name in ("hk_fp8", "hk_mxfp6")),
    *(Written(HOW, name) for name in RECIPES),
    Written(HOW, "fp8", "mxfp6_e2m3"),
    *(Written(HOW, name, ignore=0) for name in ("mxfp4", "mxfp6_e2m3")),
    *(kind(HOW, SCHEME, ranks=ranks) for kind in (Rotated, Folded) for ranks in (1, 2)),
    *(RotatedWhileLoading(HOW, ONLINE.name, ranks=ranks) for ranks in (1, 2)),
    *refused(HOW),
]


@pytest.mark.engine_proof
@pytest.mark.parametrize(
    "item",
    [
        *(pytest.param(Serialized(HOW, name), marks=pytest.mark.held) for name in SERIALIZED),
        *CASES,
    ],
    ids=str,
)
def test_a_case(item: Case, engines: Engines, checkpoint: Checkpoint, folder: Path) -> None:
    engines.add(item.scenarios(checkpoint, folder))
    item.check(engines.of, item.made(checkpoint, folder))
