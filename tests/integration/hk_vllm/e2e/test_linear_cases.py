"""Linear layers in running engines, by the cases of shared/e2e/linear_cases.py.

Cases are checkpoints of other tools and of ours, rotated ones, faults, and weights that are
quantised while they are loaded.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.hk_vllm.e2e.engine import COMPILED, SPAWNED, serve
from tests.integration.shared.checkpoints import SCHEMES
from tests.integration.shared.checkpoints.damage import DAMAGES
from tests.integration.shared.checkpoints.ours import ONLINE
from tests.integration.shared.e2e.engine import Checkpoint, Engines
from tests.integration.shared.e2e.linear_cases import (
    SCHEME,
    Case,
    Damaged,
    Faulty,
    Folded,
    How,
    OnGfx950,
    Refused,
    Rotated,
    RotatedWhileLoading,
    Serialized,
    refused,
)
from tests.integration.shared.e2e.linear_faults import EACH
from tests.integration.shared.e2e.linear_written import HeadInSixBits, Online
from tests.integration.shared.linear.devices import GFX950, unserved


def online(name: str, options: dict[str, str]) -> dict[str, object]:
    """Arguments with which a user gives options to `--quantization hk_...`."""
    overrides = {"quantization_config_dict_json": json.dumps(options)} if options else {}
    return {"quantization": name, "hf_overrides": overrides}


HOW = How(
    engine={"max_model_len": 256, "max_num_batched_tokens": 256},
    alone={"max_num_seqs": 1},
    ranks={"tensor_parallel_size": 2},
    spawned=SPAWNED | {"VLLM_CPU_OMP_THREADS_BIND": "0|1"},
    dtype_of_ranks="float32",
    online=online,
)
IN_GRAPHS = ({"enforce_eager": False}, COMPILED | {"HK_CHECK": "0"})
QUICK = (
    *("fp8-static", "fp8-block", "ct-channel-token", "ct-channel-weight-only", "ct-mxfp4"),
    *("quark-mxfp6_e2m3", "modelopt-fp8", "hk-mxfp4"),
)
"""One scheme for each way through vLLM; the others are slow tests."""
QUICK_HALF = ("fp8-dynamic", "quark-mxfp6_e3m2-weight-only")
HALF = [scheme.name for scheme in SCHEMES.values() if "float16" in scheme.dtypes]
QUICK_ON_GFX950 = ("fp8-block", "ct-channel-token", "quark-mxfp4-mxfp6_e2m3")
ON_GFX950 = [name for name, each in SCHEMES.items() if not unserved(GFX950, each)]
ADAPTED = "hk_folded 'all' is not valid with LoRA adapters"
DISABLED = {"VLLM_DISABLED_KERNELS": "HKMxfp4LinearKernel"}
PROOFS: list[Case] = [
    *(Serialized(HOW, name) for name in QUICK),
    *(Serialized(HOW, name, "float16") for name in QUICK_HALF),
    *(OnGfx950(HOW, name) for name in QUICK_ON_GFX950),
    *(Faulty(HOW, *each) for each in EACH),
    *(Damaged(HOW, each.scheme, each) for each in DAMAGES),
    *(Online(HOW, name) for name in ("hk_fp8", "hk_mxfp6")),
    *(Rotated(HOW, SCHEME), Folded(HOW, SCHEME), *refused(HOW)),
    Refused(HOW, SCHEME, "disabled", "disabled by environment", DISABLED),
    Refused(HOW, SCHEME, "adapted", ADAPTED, {}, {"enable_lora": True}, folded=True),
]
SLOW: list[Case] = [
    *(Serialized(HOW, name) for name in SCHEMES if name not in QUICK),
    *(Serialized(HOW, name, "float16") for name in HALF if name not in QUICK_HALF),
    *(OnGfx950(HOW, name) for name in ON_GFX950 if name not in QUICK_ON_GFX950),
    OnGfx950(HOW, "ct-channel-token", ranks=2),
    RotatedWhileLoading(HOW, ONLINE.name),
    *(kind(HOW, SCHEME, ranks=2) for kind in (Rotated, Folded)),
    RotatedWhileLoading(HOW, ONLINE.name, ranks=2),
    *(HeadInSixBits(HOW, "ct-channel-weight-only", ranks=ranks) for ranks in (1, 2)),
]


@pytest.fixture(scope="module")
def engines(folder: Path) -> Engines:
    return serve([], folder / "linear-cases", {})


@pytest.mark.parametrize(
    "item",
    [
        *(pytest.param(each, marks=pytest.mark.engine_proof) for each in PROOFS),
        *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW),
    ],
    ids=str,
)
def test_a_case(item: Case, engines: Engines, checkpoint: Checkpoint, folder: Path) -> None:
    engines.add(item.scenarios(checkpoint, folder))
    item.check(engines.of, item.made(checkpoint, folder))


@pytest.mark.slow
@pytest.mark.parametrize("item", [OnGfx950(HOW, "ct-channel-token", IN_GRAPHS)], ids=["graphs"])
def test_in_graphs_vllm_rounds(item: OnGfx950, checkpoint: Checkpoint, folder: Path) -> None:
    """vLLM's own quantiser rounds, fused by Inductor with the norm before it."""
    engines = serve(item.scenarios(checkpoint, folder), folder / "linear-graphs", {})
    item.check(engines.of, item.made(checkpoint, folder))
    assert engines.of(str(item)).lines("saved AOT compiled function"), "nothing was compiled"
    before, [after] = engines[str(item)].start[0], engines[str(item)].rounds[-1].workers
    for name, count in after.launches.items():
        if name.startswith("quantize_fp8"):
            assert count == before.launches.get(name, 0), name
