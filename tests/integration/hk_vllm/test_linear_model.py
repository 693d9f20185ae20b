"""A whole model: its layers counted, its head found, its compile key; and that nobody saves it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm.linear import model
from vllm.config import VllmConfig, get_current_vllm_config, set_current_vllm_config
from vllm.model_executor.layers.fused_moe import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.quantization import get_quantization_config
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from hk_backend import reference
from hk_backend.devices.cpu.isas import usable_isas
from hk_backend.engine.linear.route import is_attached
from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import Tally, routes
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_vllm import linear_layers
from tests.integration.hk_vllm.linear_layers import load, merged, reload
from tests.integration.shared.linear.layers import values

K, WIDTHS, VOCABULARY = 72, [40, 24], 128


pytestmark = pytest.mark.usefixtures("fresh_linear_route")


def layer_of(k: int = K) -> Any:
    layer = merged(None, torch.bfloat16, k, WIDTHS, prefix="model.gate_up_proj")
    return load(layer, {"weight": [values((width, k)) for width in WIDTHS]})


def table_of(kind: Any = VocabParallelEmbedding, vocabulary: int = VOCABULARY) -> Any:
    with set_default_torch_dtype(torch.bfloat16):
        table = kind(vocabulary, K)
    record_metadata_for_reloading(table)
    table.weight_loader(table.weight, values((vocabulary, K)))
    table.quant_method.process_weights_after_loading(table)
    return table


# -- an embedding that is the LM head too


def with_logits(**layers: Any) -> torch.nn.Module:
    return torch.nn.ModuleDict(layers | {"logits_processor": LogitsProcessor(VOCABULARY)})


def assert_logits(table: Any, seed: int = 0) -> None:
    x, weight = values((5, K), seed=9), values((VOCABULARY, K), seed=seed)
    out = table.quant_method.apply(table, x)
    assert largest_error(out, reference.linear(x, weight, "bf16")) <= tolerance(torch.bfloat16)
    assert torch.equal(table(torch.tensor([3])), weight[[3]]), "it is an embedding no more"


def test_an_embedding_that_computes_the_logits() -> None:
    """Gemma 2, Cohere: `logits_processor(embed_tokens, ...)`; other tables stay tables."""
    other, table = table_of(vocabulary=64), table_of()
    model.account(with_logits(other=other, embed_tokens=table))
    assert (is_attached(other), is_attached(table)) == (False, True)
    assert not hasattr(table, "cpu_linear"), "vLLM's own packed table is still in memory"
    assert routes.counters("linear").layers == 1
    assert_logits(table)
    assert routes.counters("linear").served.calls == 1


def test_its_reload() -> None:
    table = table_of()
    model.account(with_logits(embed_tokens=table))
    address = table.hk_data.data_ptr()
    reload(table, {"weight": [values((VOCABULARY, K), seed=5)]})
    assert table.hk_data.data_ptr() == address
    assert_logits(table, seed=5)


def test_an_embedding_that_cannot_be_served(
    environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_current_vllm_config().model_config, "head_dtype", torch.float32)
    whole = with_logits(embed_tokens=table_of())
    model.account(whole)
    why = "an LM head in torch.float32, the model in torch.bfloat16"
    assert routes.counters("linear").layers_left == {why: 1}
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match=f"embed_tokens would fall back: {why}"):
        model.account(whole)


def test_an_embedding_beside_a_head_or_without_logits() -> None:
    for whole in (
        with_logits(embed_tokens=table_of(), lm_head=table_of(ParallelLMHead)),
        torch.nn.ModuleDict({"embed_tokens": table_of()}),
    ):
        model.account(whole)
        assert not is_attached(whole["embed_tokens"])
    assert routes.counters("linear").layers == 1, "the head"


@pytest.mark.parametrize("last", [False, True])
def test_an_embedding_of_a_pipeline_stage(last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last stage computes logits: on the others the embedding stays a table."""
    monkeypatch.setattr(model, "get_pp_group", lambda: SimpleNamespace(is_last_rank=last))
    table = table_of()
    model.account(with_logits(embed_tokens=table))
    assert is_attached(table) == last


# -- experts of a mixture


def test_experts_that_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnquantizedFusedMoEMethod, "__init__", lambda self, moe: None)
    layer = linear_layers.experts()
    layer.moe_config = SimpleNamespace()
    config = get_quantization_config("hk_fp8")(ignore=["*.experts"])
    method = config.get_quant_method(layer, "model.layers.0.mlp.experts")
    assert isinstance(method, UnquantizedFusedMoEMethod)


# -- the compile-cache key


def test_each_device_has_its_own_key(environment: Callable[..., None]) -> None:
    """A compiled graph holds the packed layout of its layers."""
    added = []
    devices = [f"cpu:{isa}" for isa in usable_isas()]
    for device in devices:
        environment(HK_DEVICE=device)
        config = VllmConfig()
        config.model_config = get_current_vllm_config().model_config
        with set_current_vllm_config(config):
            model.account(torch.nn.ModuleDict({"one": layer_of()}))
        added.append(config.additional_config["hk_backend"])
    of_one = hashlib.sha256(b"one").hexdigest()[:16]
    assert added == [f"linear on {device} of {of_one}" for device in devices]


def test_other_layers_have_another_key() -> None:
    """A compiled graph reads the packed weights of those that HK serves, and of no others."""
    added = set()
    for names in (["one"], ["two"], ["one", "two"]):
        config = VllmConfig()
        config.model_config = get_current_vllm_config().model_config
        with set_current_vllm_config(config):
            model.account(torch.nn.ModuleDict({name: layer_of() for name in names}))
        added.add(config.additional_config["hk_backend"])
    assert len(added) == 3


# -- saved


def test_the_logits_of_a_warm_up_are_no_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM asks for them after its dummy run, outside of any forward context."""
    layer = layer_of()

    def dummy_sampler_run(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        return layer(hidden_states)[0]

    monkeypatch.setattr(GPUModelRunner, "_dummy_sampler_run", dummy_sampler_run)
    for _ in range(2):  # harmless to call again
        model.mark_dummy_logits()
    GPUModelRunner._dummy_sampler_run(object(), values((128, K)))
    counters = routes.counters("linear")
    assert (counters.dummy, counters.served) == (Tally(1, 128), Tally())
    layer(values((3, K)))
    assert (counters.dummy, counters.served) == (Tally(1, 128), Tally(1, 3))
