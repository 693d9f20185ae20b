"""Unquantised layers and LM heads in SGLang's own ways: packed, or left with a reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.linear import layer as hk_layer
from hk_sglang.linear import loading, model
from hk_sglang.linear.head import why_table_stays
from sglang.srt.layers.linear import ReplicatedLinear
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.layers.utils import PPMissingLayer
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from sglang.srt.runtime_context import get_context

from hk_backend import reference
from hk_backend.engine.linear.route import is_attached
from hk_backend.engine.linear.shared_table import DRAFTS, LORA
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_layers import load, made, merged, online, restored
from tests.integration.shared.linear.devices import on_devices
from tests.integration.shared.linear.layers import WIDTHS, K, left, loaded, values, weights

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


@on_devices
def test_a_layer_in_a_sum_and_into_a_buffer(device: str) -> None:
    """SGLang's models also let the method add to another tensor, and write into a buffer."""
    layer = loaded(linear_layers)
    x, addend = values((5, K), seed=9), values((5, 64), seed=3)
    alone = layer.quant_method.apply(layer, x)
    both = layer.quant_method.apply_with_addend(layer, x, addend)
    assert torch.equal(both, alone + addend)
    out = torch.empty(5, 64, dtype=torch.bfloat16)
    assert layer.quant_method.apply_into(layer, x, out) is out
    assert torch.equal(out, alone)
    assert routes.counters("linear").served.calls == 3


@pytest.mark.parametrize("name", sorted(hk_layer.READ_BY_MODELS))
def test_a_weight_that_models_read(name: str) -> None:
    """HK leaves such a weight. If the weight is to be quantised nobody can compute the layer, and
    the error says how to exclude it."""
    name = f"model.layers.0.{name}"
    layer = load(merged(None, torch.bfloat16, K, WIDTHS, prefix=name), {"weight": weights()})
    assert left(linear_layers, layer) == "SGLang's models may read its weight themselves"
    assert torch.equal(layer.weight, torch.cat(weights()))
    with pytest.raises(ValueError, match=r"models may read its weight themselves.*`ignore`"):
        merged(online("hk_fp8"), torch.bfloat16, K, WIDTHS, prefix=name)


def test_deterministic_inference() -> None:
    with get_context().override_server_args(device="cpu", enable_deterministic_inference=True):
        layer = loaded(linear_layers)
    assert left(linear_layers, layer) == "--enable-deterministic-inference: not proven for HK"


# -- whole models


@pytest.mark.parametrize("owner", loading.PREPARED)
def test_a_state_that_was_saved(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang loads a saved state into processed layers, so HK must not take their tensors."""
    with restored():
        monkeypatch.setattr(owner, "load_model", lambda self: loaded(linear_layers))
        loading.install()
        layer = owner.load_model(SimpleNamespace())
    why = "weights that SGLang has prepared: a load format of saved states"
    assert model.why_left(layer) == why
    assert layer.weight.shape == (64, K)
    assert model.why_left(loaded(linear_layers)) != why


# -- LM heads, wherever a model keeps them


H, VOCABULARY = 72, 128


class Model(torch.nn.Module):
    """A model whose LM head is `lm_head`; with `table`, an embedding computes its logits."""

    def __init__(self, lm_head: Any = None, table: Any = None) -> None:
        super().__init__()
        if table is not None:
            self.embed_tokens = table
        if lm_head is not None:
            self.lm_head = lm_head
        self.logits_processor = LogitsProcessor(SimpleNamespace(vocab_size=VOCABULARY))

    def logits(self, table: Any, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.logits_processor._compute_lm_head(x, table)
        return found


def table_of(
    kind: Any = VocabParallelEmbedding, seed: int = 0, vocabulary: int = VOCABULARY
) -> Any:
    table = made(kind, torch.bfloat16, vocabulary, H, prefix="lm_head")
    fill(table, seed)
    return table


def fill(table: Any, seed: int) -> None:
    table.weight_loader(table.weight, values((table.num_embeddings, H), seed=seed))
    table.quant_method.process_weights_after_loading(table)


def account(whole: Any) -> tuple[int, dict[str, int]]:
    routes.reset()
    model.account(whole)
    counters = routes.counters("linear")
    return counters.layers, dict(counters.layers_left)


def assert_logits(whole: Any, table: Any, seed: int = 0) -> None:
    x, weight = values((5, H), seed=9), values((VOCABULARY, H), seed=seed)
    served = routes.counters("linear").served.calls
    out = whole.logits(table, x)
    assert largest_error(out, reference.linear(x, weight, "bf16")) <= tolerance(torch.bfloat16)
    assert routes.counters("linear").served.calls == served + 1
    assert torch.equal(table.weight, weight), "its table is gone"


def test_an_embedding_that_computes_the_logits() -> None:
    """Gemma 2 has no `lm_head`: HK takes the embedding with the vocabulary of the logits."""
    table = table_of()
    whole = Model(table=table)
    whole.other = table_of(vocabulary=64)
    assert account(whole) == (1, {})
    assert (is_attached(whole.other), is_attached(table)) == (False, True)
    assert_logits(whole, table)
    address = table.hk_data.data_ptr()
    fill(table, seed=5)
    assert table.hk_data.data_ptr() == address
    assert_logits(whole, table, seed=5)


@pytest.mark.parametrize("stage", ["another", "this"])
def test_an_embedding_of_a_pipeline_stage(stage: str) -> None:
    """Every pipeline stage has a logits processor, but only the last one has the head."""
    table = table_of()
    head = PPMissingLayer() if stage == "another" else table_of(ParallelLMHead, seed=1)
    model.account(Model(head, table))
    assert not is_attached(table)
    assert is_attached(head) == (stage == "this")


def test_an_embedding_of_torchs() -> None:
    """Gemma 3's embedding is torch's own, and SGLang's loader does not say when it changes.

    HK leaves it, inside of a model for images as well.
    """
    table = torch.nn.Embedding(VOCABULARY, H, dtype=torch.bfloat16)
    whole = torch.nn.Module()
    whole.language_model = Model(lm_head=table, table=table)
    why = "an LM head that is not one of SGLang's layers: Embedding"
    assert account(whole) == (0, {why: 1})
    x = values((5, H), seed=9)
    assert torch.equal(whole.language_model.logits(table, x), x @ table.weight.T)


def test_a_linear_layer_that_is_the_head() -> None:
    """Grok's logits processor multiplies by the head's weight, which must still be there."""
    head = made(ReplicatedLinear, torch.bfloat16, H, VOCABULARY, bias=False, prefix="lm_head")
    head.weight_loader(head.weight, values((VOCABULARY, H)))
    head.quant_method.process_weights_after_loading(head)
    whole = Model(lm_head=head)
    assert account(whole) == (0, {"SGLang's models may read its weight themselves": 1})
    x = values((5, H), seed=9)
    assert torch.equal(whole.logits(head, x), x @ values((VOCABULARY, H)).T)


def test_a_head() -> None:
    """HK serves the head, also when compiled.

    ModelOpt excludes some heads, and SGLang gives these the method of linear layers. Their tables
    stay nevertheless.
    """
    whole = Model(table_of(ParallelLMHead))
    account(whole)
    compiled, x = torch.compile(whole.logits, backend="eager"), values((5, H), seed=9)
    assert torch.equal(compiled(whole.lm_head, x), whole.logits(whole.lm_head, x))
    assert routes.counters("linear").served.calls == 2
    whole.lm_head.quant_method = UnquantizedLinearMethod()
    whole.lm_head.quant_method.process_weights_after_loading(whole.lm_head)
    assert account(whole) == (1, {})
    assert_logits(whole, whole.lm_head)


def test_a_table_that_is_replaced() -> None:
    """A draft model takes its target's table in place of the one that HK packed."""
    whole = Model(table_of(ParallelLMHead))
    account(whole)
    del whole.lm_head.weight
    whole.lm_head.weight = torch.nn.Parameter(values((VOCABULARY, H), seed=5), requires_grad=False)
    x = values((5, H), seed=9)
    out = whole.logits(whole.lm_head, x)
    assert torch.equal(out, x @ values((VOCABULARY, H), seed=5).T)
    counters = routes.counters("linear")
    assert counters.served.calls == 0
    why = "an LM head whose table was replaced after it was loaded"
    assert {name: tally.tokens for name, tally in counters.fallbacks.items()} == {why: 5}


FLAGS = {"use_fp32_lm_head": True, "use_fp32_lm_head_output": True, "rl_on_policy_target": "fsdp"}


@pytest.mark.parametrize("flag", [*FLAGS, ""])
def test_a_head_that_is_left(flag: str) -> None:
    """SGLang computes a head in another dtype, or a quantised one by the checkpoint's method."""
    whole = Model(table_of(ParallelLMHead))
    if flag:
        setattr(whole.logits_processor, flag, FLAGS[flag])
        why = "an LM head in another dtype than the model's"
    else:
        whole.lm_head.quant_method = SimpleNamespace()
        why = "SimpleNamespace: HK has no kernel for it"
    assert account(whole) == (0, {why: 1})


def test_who_may_read_a_table() -> None:
    none = {"speculative_algorithm": None, "enable_lora": None, "lora_paths": None}
    for flags, why in (
        ({}, ""),
        ({"speculative_algorithm": "EAGLE"}, DRAFTS),
        ({"enable_lora": True}, LORA),
    ):
        assert why_table_stays(SimpleNamespace(**none | flags)) == why
