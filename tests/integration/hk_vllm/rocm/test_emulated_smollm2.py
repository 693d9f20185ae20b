"""SmolLM2 in rotated mxfp4 with activations in mxfp6_e2m3, served by a whole emulated MI355X.

`hk-backend quantize --format mxfp4 --activations mxfp6_e2m3 --method rotated` writes the
checkpoint. HK_CHECK holds each call of a layer to the reference, within its format's bound. The
answers can only be held to less. A sum that rounds otherwise changes a code here and there, and 30
blocks magnify this. The cpu device's distance from the truth says by how much the two may differ.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from hk_backend.quantize.job import Job
from hk_backend.quantize.settings import Settings
from tests.integration.hk_vllm.e2e.engine import FORKS as WITHOUT_TRITON
from tests.integration.hk_vllm.e2e.engine import serve
from tests.integration.hk_vllm.rocm.test_emulated_engine import FORKS
from tests.integration.shared.checkpoints import Made
from tests.integration.shared.e2e.compare import assert_decoded, assert_routed, assert_true_tokens
from tests.integration.shared.e2e.engine import HK, Engines
from tests.integration.shared.e2e.linear_faults import ROTATION_FAULTS
from tests.integration.shared.e2e.linear_written import write_truth
from tests.integration.shared.e2e.quantized import assert_checked, assert_on_gfx950
from tests.integration.shared.e2e.rounding import assert_same_numbers, assert_within, error_of
from tests.integration.shared.e2e.scenario import Round, Scenario, ScenarioResult
from tests.integration.shared.linear.devices import GFX950
from tests.models import smollm2

pytestmark = pytest.mark.triton
BLOCKS = 30
LAYERS = 4 * BLOCKS + 1
"""SmolLM2's linear layers: QKV, output, gate-up and down of each block, and the head."""
TEXTS = ("one, two, three, four, five, six,", "a, b, c, d, e, f, g,")
"""Texts of 12 and 14 tokens, whose next two are no close call: each leads by 2.5 nats or more."""
MAX_TOKENS = 2
ENGINE = {"max_model_len": 64, "max_num_batched_tokens": 64, "max_num_seqs": 2}
PRODUCT, ROUNDING, HEAD = "gemm_mxfp4_mxfp6_e2m3_", "quantize_mxfp6_e2m3_", "gemm_bf16_"
"""Beginnings of the names of kernels: each quantised layer launches the first two."""
GPU, FAULTY, MOVED, CPU = "gpu", "faulty", "moved", "cpu"


@dataclass(frozen=True)
class Served:
    """The engines, and the truth about their checkpoint."""

    engines: dict[str, Engines]
    truth: str

    def __getitem__(self, name: str) -> ScenarioResult:
        return self.engines[name][name]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The whole emulated GPU, one with faults in its layers, one with moved scales, and the cpu.

    Those with faults answer one token, and compute all but HK's part on the CPU. The cpu device
    answers as many in one round, and one in another.
    """
    folder, source = tmp_path_factory.mktemp("smollm2"), smollm2()
    made = Made(folder / "quantised", folder / "truth")
    job = Job(source, made.checkpoint, Settings("mxfp4", "mxfp6_e2m3", method="rotated"))
    job.run()
    write_truth(job, made, source)
    moved = with_moved_scales(made.checkpoint, folder / "moved-scales")
    tokenizer = AutoTokenizer.from_pretrained(source)
    healthy = Round([tokenizer(text)["input_ids"] for text in TEXTS], MAX_TOKENS)
    short = replace(healthy, max_tokens=1)
    faulty = [replace(short, mutation=fault) for fault in ROTATION_FAULTS]

    def engine(name: str, rounds: list[Round], model: Path = made.checkpoint) -> Engines:
        more = {"enforce_eager": False} if name == GPU else {}
        environment = {**HK, "HK_DEVICE": "cpu" if name == CPU else GFX950}
        environment["HK_CHECK"] = "1" if name == GPU else "0"
        asked = Scenario(name, str(model), rounds, "bfloat16", {**ENGINE, **more})
        return serve([asked], folder / name, environment, FORKS if name == GPU else WITHOUT_TRITON)

    engines = {
        GPU: engine(GPU, [healthy]),
        FAULTY: engine(FAULTY, faulty),
        MOVED: engine(MOVED, [short], moved),
        CPU: engine(CPU, [healthy, short]),
    }
    return Served(engines, str(made.truth))


def with_moved_scales(checkpoint: Path, into: Path) -> Path:
    """Copy the checkpoint, in which each block then has the scale of the next one along K."""
    shutil.copytree(checkpoint, into)
    [file] = into.glob("*.safetensors")
    tensors = load_file(file)
    for name in [name for name in tensors if name.endswith(".weight_scale")]:
        tensors[name] = tensors[name].roll(-1, -1).contiguous()
    save_file(tensors, file, {"format": "pt"})
    return into


def assert_layers_by_hk(result: ScenarioResult) -> None:
    linear = result.rounds[-1].workers[0].routes["linear"]
    assert linear["on"], linear["why"]
    assert (linear["layers"], linear["layers_left"], linear["fallbacks"]) == (LAYERS, {}, {})


@pytest.mark.engine_proof
def test_the_emulated_gpu_answers_as_the_cpu_device(served: Served) -> None:
    """The errors of each are draws of one distribution, and the tokens are the truth's."""
    found, cpu = served[GPU], served[CPU]
    for each in (found, cpu):
        assert_layers_by_hk(each)
        assert_routed(each)
        assert_decoded(each)
    assert_on_gfx950(found)
    assert_checked(found)
    launches = found.rounds[-1].workers[0].launches
    product, rounding, head = (
        sum(count for kernel, count in launches.items() if kernel.startswith(name))
        for name in (PRODUCT, ROUNDING, HEAD)
    )
    assert product == rounding >= MAX_TOKENS * (LAYERS - 1)
    assert head >= MAX_TOKENS
    healthy = replace(cpu, rounds=cpu.rounds[:1])
    assert_same_numbers(found, healthy, served.truth)
    for result in (found, healthy):
        assert_true_tokens(result.rounds[0].answers, served.truth)


@pytest.mark.engine_proof
def test_faults_on_the_emulated_gpu_are_seen(served: Served) -> None:
    """The control: HK counts these layers as its own, and they fail the same comparison."""
    healthy, short = served[CPU].rounds
    noise = error_of([healthy], served.truth)
    faulty, moved = served[FAULTY], served[MOVED]
    calls = [0, *(item.workers[0].mutated_calls for item in faulty.rounds)]
    assert all(after - before >= LAYERS for before, after in pairwise(calls)), calls
    for result in (faulty, moved):
        assert_layers_by_hk(result)
    for item in (*faulty.rounds, *moved.rounds):
        with pytest.raises(AssertionError, match=r"mean error .* between the two, rounding gives"):
            assert_within([item], [short], noise)
