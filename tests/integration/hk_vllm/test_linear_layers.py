"""Unquantised layers, LM heads and whole models in vLLM's own ways, and folded checkpoints.

Some of vLLM's options are refused beside a folded or rotated checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm.linear import model
from hk_vllm.linear.model import WORKER, adapters_and_readers, watch_reloads, why_left
from hk_vllm.linear.quantization import check_weight_arrived
from hk_vllm.linear.tied import share_table, why_table_stays
from vllm.config import (
    LoadConfig,
    ModelConfig,
    SpeculativeConfig,
    VllmConfig,
    get_current_vllm_config,
    set_current_vllm_config,
)
from vllm.model_executor.layers.fused_moe import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.quantization import get_quantization_config
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker

from hk_backend.devices.cpu.isas import usable_isas
from hk_backend.engine.linear.heads import Head, requesting
from hk_backend.engine.linear.route import is_attached
from hk_backend.engine.linear.shards import CheckpointError
from hk_backend.engine.linear.shared_table import DRAFTS, LORA, SEVERAL
from hk_backend.ops.head_format import IN_HEAD, KEPT
from hk_backend.quantize.recipe import RECIPES
from hk_backend.routing.routes import Tally, routes
from tests.integration.adapter import Environment
from tests.integration.hk_vllm import linear_layers
from tests.integration.hk_vllm.linear_layers import load, reload
from tests.integration.hk_vllm.sleeper import sleeper
from tests.integration.shared.linear import heads
from tests.integration.shared.linear.heads import VOCABULARY, table
from tests.integration.shared.linear.layers import (
    K,
    assert_computes,
    left,
    loaded,
    unloaded,
    values,
    weights,
)

pytestmark = pytest.mark.usefixtures("fresh_linear_route")

IN_FLOAT32 = "an LM head in torch.float32, the model in torch.bfloat16"


def test_a_layer_that_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer wakes from sleep at level 2, which loses all memory, and then takes a reload.

    vLLM keeps a model's buffers on the host, packed weights among them, and gives them back.
    """
    layer = loaded(linear_layers)
    address = layer.hk_data.data_ptr()

    def lose() -> None:
        for tensor in (*layer.parameters(), *layer.buffers()):
            tensor.zero_()

    worker = sleeper(layer, lose, monkeypatch)
    Worker.sleep(worker, 2)
    with pytest.raises(AssertionError):
        assert_computes(layer, torch.cat(weights()))
    Worker.wake_up(worker)
    assert_computes(layer, torch.cat(weights()))
    reload(layer, {"weight": weights(seed=5)})
    assert layer.hk_data.data_ptr() == address
    assert_computes(layer, torch.cat(weights(seed=5)))


def test_a_layer_that_is_left_to_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = unloaded(linear_layers)
    layer._cpu_skip_gemm_dispatch = True
    load(layer, {"weight": weights()})
    assert left(linear_layers, layer) == "latent attention reads the weight itself"
    assert torch.equal(layer.weight, torch.cat(weights()))
    with monkeypatch.context() as patch:
        patch.setattr(get_current_vllm_config().kernel_config, "linear_backend", "torch")
        assert left(linear_layers, loaded(linear_layers)) == "--linear-backend torch"
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    why = "VLLM_BATCH_INVARIANT: not proven for HK"
    assert left(linear_layers, loaded(linear_layers)) == why


# -- LM heads


def test_an_embedding_in_the_head_is_in_the_compile_key() -> None:
    """A compiled graph holds the operator that looks up rows in the head."""
    config = get_current_vllm_config()
    config.additional_config = {}
    linear_layers.headed(Head("mxfp8"), table(), tied=True)
    assert config.additional_config == {}
    linear_layers.headed(Head("mxfp8", IN_HEAD), table(), tied=True)
    assert config.additional_config == {"hk_backend": "linear: embedding in the head"}


def test_several_heads() -> None:
    """Nothing says which of several heads the embedding shares, so the table stays."""
    whole = linear_layers.headed(Head("mxfp8"), table(), tied=True)
    whole.other = linear_layers.headed(Head("mxfp8"), table()).lm_head
    with requesting(Head("mxfp8", IN_HEAD)):
        assert share_table(whole, "") == SEVERAL
    assert torch.equal(whole.lm_head.weight[:VOCABULARY], table())


@pytest.mark.parametrize(
    ("speculative", "lora", "why"), [(None, None, ""), ("eagle", None, DRAFTS), (None, "all", LORA)]
)
def test_who_may_read_a_table(speculative: object, lora: object, why: str) -> None:
    config = SimpleNamespace(speculative_config=speculative, lora_config=lora)
    assert why_table_stays(config) == why


@pytest.mark.parametrize("format", [KEPT, "mxfp8"])
def test_a_head_that_vllm_computes_in_another_dtype(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head in another dtype needs the table, and the log says why HK does not serve it."""
    monkeypatch.setattr(get_current_vllm_config().model_config, "head_dtype", torch.float32)
    whole = linear_layers.headed(Head(format), table())
    assert left(linear_layers, whole.lm_head) == IN_FLOAT32
    assert torch.equal(whole.lm_head.weight[:VOCABULARY], table())


# -- an embedding that is the LM head too: Gemma 2, Cohere


def table_of(kind: Any = VocabParallelEmbedding, vocabulary: int = VOCABULARY) -> Any:
    with set_default_torch_dtype(torch.bfloat16):
        made = kind(vocabulary, heads.K)
    record_metadata_for_reloading(made)
    made.weight_loader(made.weight, table()[:vocabulary])
    made.quant_method.process_weights_after_loading(made)
    return made


def with_logits(**layers: Any) -> Any:
    whole = torch.nn.ModuleDict(layers | {"logits_processor": LogitsProcessor(VOCABULARY)})
    whole.__dict__["lm_head"] = whole["embed_tokens"]
    return whole


def test_an_embedding_that_computes_the_logits() -> None:
    """vLLM calls `logits_processor(embed_tokens, ...)`; HK packs that table, and no other."""
    other, embedding = table_of(vocabulary=64), table_of()
    whole = with_logits(other=other, embed_tokens=embedding)
    model.account(whole)
    assert (is_attached(other), is_attached(embedding)) == (False, True)
    assert not hasattr(embedding, "cpu_linear"), "vLLM's own packed table is still in memory"
    assert routes.counters("linear").layers == 1
    heads.assert_computes(linear_layers, whole, table(), KEPT)
    assert routes.counters("linear").served.calls == 1
    address = embedding.hk_data.data_ptr()
    reload(embedding, {"weight": [table(seed=5)]})
    assert embedding.hk_data.data_ptr() == address
    heads.assert_computes(linear_layers, whole, table(seed=5), KEPT)
    assert torch.equal(embedding(torch.tensor([3])), table(seed=5)[[3]]), "an embedding no more"


def test_an_embedding_that_computes_no_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """HK leaves an embedding beside a head, without logits, or before the last pipeline stage."""
    for whole in (
        with_logits(embed_tokens=table_of(), lm_head=table_of(ParallelLMHead)),
        torch.nn.ModuleDict({"embed_tokens": table_of()}),
    ):
        model.account(whole)
        assert not is_attached(whole["embed_tokens"])
    assert routes.counters("linear").layers == 1, "the head"
    for last in (False, True):
        stage = SimpleNamespace(is_last_rank=last)
        monkeypatch.setattr(model, "get_pp_group", lambda stage=stage: stage)
        whole = with_logits(embed_tokens=table_of())
        model.account(whole)
        assert is_attached(whole["embed_tokens"]) == last


# -- whole models


def test_experts_that_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnquantizedFusedMoEMethod, "__init__", lambda self, moe: None)
    layer = linear_layers.experts()
    layer.moe_config = SimpleNamespace()
    config = get_quantization_config("hk_fp8")(ignore=["*.experts"])
    method = config.get_quant_method(layer, "model.layers.0.mlp.experts")
    assert isinstance(method, UnquantizedFusedMoEMethod)


def test_the_compile_key(environment: Environment) -> None:
    """The key holds the packed layout of the layers that HK serves, as compiled graphs do."""
    added = []
    devices = [f"cpu:{isa}" for isa in usable_isas()]
    cells = [*((device, ["one"]) for device in devices), (devices[0], ["two"])]
    for device, names in [*cells, (devices[0], ["one", "two"])]:
        environment(HK_DEVICE=device)
        config = VllmConfig()
        config.model_config = get_current_vllm_config().model_config
        with set_current_vllm_config(config):
            model.account(torch.nn.ModuleDict({name: loaded(linear_layers) for name in names}))
        added.append(config.additional_config["hk_backend"])
    of_one = hashlib.sha256(b"one").hexdigest()[:16]
    assert added[:-2] == [f"linear on {device} of {of_one}" for device in devices]
    assert len(set(added)) == len(added)


def test_the_logits_of_a_warm_up_are_no_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM computes these logits after its dummy run, outside of any forward context."""
    layer = loaded(linear_layers)

    def dummy_sampler_run(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        return layer(hidden_states)[0]

    monkeypatch.setattr(GPUModelRunner, "_dummy_sampler_run", dummy_sampler_run)
    for _ in range(2):  # a second call changes nothing
        model.mark_dummy_logits()
    GPUModelRunner._dummy_sampler_run(object(), values((128, K)))
    counters = routes.counters("linear")
    assert (counters.dummy, counters.served) == (Tally(1, 128), Tally())
    layer(values((3, K)))
    assert (counters.dummy, counters.served) == (Tally(1, 128), Tally(1, 3))


def layer_of(**members: Any) -> Any:
    layer = torch.nn.Module()
    for name, value in members.items():
        setattr(layer, name, value)
    return layer


@pytest.mark.parametrize(
    ("device", "why"), [("meta", None), ("cpu", "SimpleNamespace: HK has no kernel for it")]
)
def test_a_layer_whose_weight_is_on_another_rank_needs_no_reason(
    device: str, why: str | None
) -> None:
    weight = torch.nn.Parameter(torch.empty(8, 8, device=device))
    assert why_left(layer_of(weight=weight, quant_method=SimpleNamespace())) == why


def test_a_layer_without_a_weight_has_a_reason() -> None:
    layer = layer_of(quant_method=SimpleNamespace())
    assert why_left(layer) == "SimpleNamespace: HK has no kernel for it"


@pytest.mark.parametrize("load_format", ["auto", "dummy"])
def test_a_weight_has_to_arrive_unless_vllm_makes_it_up(load_format: str) -> None:
    layer = layer_of(prefix="0.mlp.down_proj")
    with set_current_vllm_config(VllmConfig(load_config=LoadConfig(load_format=load_format))):
        if load_format == "dummy":
            check_weight_arrived(layer)
        else:
            with pytest.raises(CheckpointError, match=r"0\.mlp\.down_proj\.weight: not in the"):
                check_weight_arrived(layer)


# -- folded and rotated checkpoints


PLAIN = {"runner_type": "generate", "enable_prompt_embeds": False}


@pytest.mark.parametrize(
    ("drafts", "lora", "model", "found"),
    [
        (None, None, {}, ("", "")),
        ("ngram", None, {}, ("", "")),
        ("draft_model", None, {}, ("", "")),
        ("eagle3", None, {}, ("", "speculative method 'eagle3'")),
        (None, "all", {}, ("LoRA adapters", "")),
        (None, None, {"runner_type": "pooling"}, ("", "--runner pooling")),
        (None, None, {"enable_prompt_embeds": True}, ("", "--enable-prompt-embeds")),
    ],
)
def test_strangers(
    drafts: str | None, lora: str | None, model: dict[str, object], found: tuple[str, str]
) -> None:
    assert {"enable_prompt_embeds", "runner"} <= ModelConfig.__dataclass_fields__.keys()
    assert "method" in SpeculativeConfig.__dataclass_fields__
    speculative = SimpleNamespace(method=drafts) if drafts else None
    config = SimpleNamespace(speculative_config=speculative, lora_config=lora)
    assert adapters_and_readers(config, SimpleNamespace(**PLAIN | model)) == found


@pytest.mark.parametrize("given", ["by name", "by position"])
def test_a_checkpoint_that_is_rotated_otherwise(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HK refuses a checkpoint with another rotation before a weight is read."""
    assert list(signature(GPUModelRunner.reload_weights).parameters)[2] == "weights_path"
    assert Worker.__module__ == WORKER
    assert issubclass(CPUWorker, Worker)
    read: list[Any] = []
    monkeypatch.setattr(Worker, "reload_weights", lambda worker, *args, **kwargs: read.append(args))
    watch_reloads()
    recipe = RECIPES["mxfp4"]
    ours = SimpleNamespace(quantization_config=recipe.quantization_config("mx", [], 64))
    worker = SimpleNamespace(model_config=SimpleNamespace(hf_config=ours))

    path = str(tmp_path)
    for rotation in (32, 64):
        new = {"quantization_config": recipe.quantization_config("mx", [], rotation)}
        (tmp_path / "config.json").write_text(json.dumps(new))
        why = r"are rotated \(Linear: 32\), those that they would"
        with pytest.raises(ValueError, match=why) if rotation == 32 else nullcontext():
            if given == "by name":
                Worker.reload_weights(worker, weights_path=path)
            else:
                Worker.reload_weights(worker, None, path)
    assert len(read) == 1
