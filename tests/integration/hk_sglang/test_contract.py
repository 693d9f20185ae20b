"""The contracts with SGLang, one for each route: a break is seen and named, and nothing is patched.

Other tests here hold the options of the linear route's quantisations, ROCm's list of methods, and
linear layers that another plugin has changed.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import make_dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.contract import BATCH_FIELDS, check_engine
from hk_sglang.linear import head
from hk_sglang.linear.contract import check_linear
from hk_sglang.linear.install import register_linear
from hk_sglang.linear.quantization import verify
from hk_sglang.linear.unquantized import REPLACED
from hk_sglang.resolution import FIRST_STEP
from sglang.srt.arg_groups import choices, pipeline, resolution_hooks
from sglang.srt.configs import model_config
from sglang.srt.layers import linear, radix_attention, vocab_parallel_embedding
from sglang.srt.layers import quantization as theirs
from sglang.srt.layers.attention import attention_registry, base_attn_backend
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization import fp8, unquant
from sglang.srt.layers.quantization.fp8 import Fp8Config
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.mem_cache import memory_pool
from sglang.srt.model_executor import forward_batch_info
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.model_loader import loader
from sglang.srt.speculative import draft_utils

from hk_backend.engine.linear.heads import KEPT_HEAD
from hk_backend.engine.linear.options import FORMATS_OF
from hk_backend.engine.linear.route import is_attached
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_layers import experts, installed, rank, restored
from tests.integration.shared.contract import assert_refused, nothing, short
from tests.integration.shared.linear.heads import table, x_of
from tests.integration.shared.linear.layers import left, unloaded, weights
from tests.integration.shared.linear.other_plugin import THEIRS, exchanged, in_both_orders

LENGTHS = "extend_seq_lens_cpu, extend_prefix_lens_cpu"
BACKEND = base_attn_backend.AttentionBackend
KEPT = [name for name in BATCH_FIELDS.split(", ") if name not in LENGTHS]
BATCH = make_dataclass("ForwardBatch", KEPT)
"""A ForwardBatch that lacks the lengths on the host."""


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with rank(), restored(), torch.no_grad():
        yield


@pytest.mark.parametrize(
    ("check", "owner", "name", "replacement", "named"),
    [
        (check_engine, forward_batch_info, "ForwardBatch", BATCH, LENGTHS),
        (check_engine, BACKEND, "forward_extend", lambda self, batch: None, "(self, batch)"),
        (
            check_engine,
            BACKEND,
            "init_forward_metadata_out_graph",
            lambda self, forward_batch: None,
            "(self, forward_batch), expected (self, forward_batch, in_capture",
        ),
        (
            check_engine,
            attention_registry,
            "register_attention_backend",
            lambda path: None,
            "(path)",
        ),
        (
            check_engine,
            resolution_hooks,
            "_OVERRIDABLE_HOOKS",
            frozenset(),
            "handle_deprecated_dp_attention",
        ),
        (check_linear, unquant.UnquantizedLinearMethod, "apply_into", nothing, "expected ("),
        (check_linear, fp8.Fp8Config, "get_quant_method", nothing, "expected ("),
        (check_linear, loader, "initialize_dummy_weights", nothing, "expected ("),
        (check_linear, ModelRunner, "load_model", lambda: None, "expected ("),
    ],
    ids=short,
)
def test_something_else_in_its_place(
    monkeypatch: pytest.MonkeyPatch, check: Any, owner: Any, name: str, replacement: Any, named: str
) -> None:
    assert check()
    monkeypatch.setattr(owner, name, replacement)
    assert_refused(check, named)


@pytest.mark.parametrize(
    ("check", "owner", "name"),
    [
        (check_engine, memory_pool.KVWriteLoc, "for_layer"),
        (check_engine, radix_attention, "AttentionType"),
        (check_engine, BACKEND, "forward_metadata"),
        (check_engine, draft_utils.DraftBackendFactory, "create_decode_backend"),
        (check_linear, linear, "WEIGHT_LOADER_V2_SUPPORTED"),
        (check_linear, vocab_parallel_embedding, "ParallelLMHead"),
    ],
    ids=short,
)
def test_something_missing(
    monkeypatch: pytest.MonkeyPatch, check: Any, owner: Any, name: str
) -> None:
    monkeypatch.delattr(owner, name)
    assert_refused(check, name)


def test_nothing_of_sglang_asks_what_hk_means_before_it_is_taken_out() -> None:
    source = inspect.getsource(pipeline.run_resolution_pipeline)
    assert source.index("run_hook(") == source.index(f"run_hook({FIRST_STEP}, ")


def test_each_route_has_a_contract_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_registry, "register_attention_backend", lambda path: None)
    assert not check_engine("attention")
    assert check_engine("linear")


def test_nothing_is_patched_if_it_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken contract leaves SGLang unpatched. A sound one patches it once, and stays sound."""
    with monkeypatch.context() as patch:
        patch.setattr(fp8.Fp8Config, "get_quant_method", nothing)
        before = dict(vars(unquant.UnquantizedLinearMethod)), dict(theirs.QUANTIZATION_METHODS)
        assert register_linear().startswith("SGLang is not one the plugin knows: nothing(self)")
        assert dict(vars(unquant.UnquantizedLinearMethod)) == before[0]
        assert before[1] == theirs.QUANTIZATION_METHODS
    assert register_linear() == ""
    changed = dict(vars(unquant.UnquantizedLinearMethod))
    assert register_linear() == ""
    assert dict(vars(unquant.UnquantizedLinearMethod)) == changed
    assert linear.WEIGHT_LOADER_V2_SUPPORTED.count("HKLinearMethod") == 1
    assert choices.QUANTIZATION_CHOICES.count("hk_fp8") == 1
    assert check_linear()


# -- options of the methods


def read(config: dict[str, Any], name: str = "hk_mxfp6") -> Any:
    with installed():
        owner = theirs.get_quantization_config(name)
    # entries that SGLang adds
    return owner.from_config({"quant_method": name, "hf_config": object(), **config})


def test_options() -> None:
    """Options of an unquantised checkpoint are read, and names of ignored layers are mapped."""
    config = read({"ignore": ["model.qkv_proj"], "activations": "none", "serialized": False})
    assert not config.serialized
    assert config.options.activations == "none"
    config.apply_weight_name_mapper(SimpleNamespace(apply_list=lambda names: ["other"]))
    assert config.options.ignore == ["other"]
    why = "hk_mxfp6: serialized 'no' is not valid: expected true or false"
    with pytest.raises(ValueError, match=why):
        read({"serialized": "no"})


def test_what_is_not_quantised(monkeypatch: pytest.MonkeyPatch) -> None:
    """HK leaves a head, and experts that are ignored, unquantised."""
    head = torch.nn.Module.__new__(vocab_parallel_embedding.ParallelLMHead)
    assert read({}).get_quant_method(head, "lm_head") is None
    monkeypatch.setattr(unquant.UnquantizedFusedMoEMethod, "__init__", lambda self, *_: None)
    layer = experts()
    layer.use_triton_kernels = layer.use_flashinfer_trtllm_moe = False
    found = read({"ignore": ["*.experts"]}).get_quant_method(layer, "model.layers.0.mlp.experts")
    assert isinstance(found, unquant.UnquantizedFusedMoEMethod)


# -- ROCm's list of methods


def as_on_rocm(monkeypatch: pytest.MonkeyPatch, quantization: str | None, checkpoint: Any) -> Any:
    """A model's configuration, on a machine that SGLang takes for ROCm."""
    monkeypatch.setattr(model_config, "is_hip", lambda: True)
    config: Any = object.__new__(model_config.ModelConfig)
    config.quantization = quantization
    config.is_draft_model = False
    monkeypatch.setattr(type(config), "_parse_quant_hf_config", lambda self: checkpoint)
    monkeypatch.setattr(type(config), "_find_quant_modelslim_config", lambda self: None)
    return config


def verified(monkeypatch: pytest.MonkeyPatch, quantization: str | None, checkpoint: Any) -> str:
    """The method that SGLang's own check leaves in the configuration."""
    config = as_on_rocm(monkeypatch, quantization, checkpoint)
    verify(model_config.ModelConfig._verify_quantization, config)
    assert model_config.is_hip(), "it is ROCm no more"
    return str(config.quantization)


@pytest.mark.parametrize("name", FORMATS_OF)
def test_on_rocm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed():
        assert name in choices.QUANTIZATION_CHOICES
        assert name in theirs.CPU_QUANTIZATION_METHODS
        assert verified(monkeypatch, name, None) == name
        assert verified(monkeypatch, None, {"quant_method": name}) == name
        with pytest.raises(ValueError, match="does not match the quantization"):
            verified(monkeypatch, name, {"quant_method": "fp8"})


def test_other_methods_on_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang still refuses the methods that it refuses on ROCm without HK."""
    with installed():
        assert verified(monkeypatch, "fp8", None) == "fp8"
        with pytest.raises(ValueError, match="w8a8_int8 quantization is currently not supported"):
            verified(monkeypatch, "w8a8_int8", None)
    with pytest.raises(ValueError, match="Unknown quantization method: hk_fp8"):
        verified(monkeypatch, "hk_fp8", None)


# -- changes of another plugin stay


@in_both_orders
@pytest.mark.parametrize("name", {*REPLACED} - {"apply", "process_weights_after_loading"})
def test_a_method(name: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanged(linear_layers, UnquantizedLinearMethod, name, monkeypatch, first)
    layer = linear_layers.load(unloaded(linear_layers), {"weight": weights()})
    assert left(linear_layers, layer) == f"UnquantizedLinearMethod.{name} is {THEIRS}"


@in_both_orders
def test_a_head(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_compute_lm_head"
    calls = exchanged(linear_layers, LogitsProcessor, name, monkeypatch, first)
    model = linear_layers.headed(KEPT_HEAD, table())
    assert not is_attached(model.lm_head)
    assert head.pack_head(model.lm_head, model) == f"LogitsProcessor.{name} is {THEIRS}"
    linear_layers.logits(model, x_of())
    assert calls == [name]


@in_both_orders
def test_a_choice_of_methods(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before HK, the other plugin chooses the layer's method. After HK, it gets HK's to choose."""
    calls = exchanged(linear_layers, Fp8Config, "get_quant_method", monkeypatch, first)
    config = Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic")
    config.packed_modules_mapping = {}
    layer = unloaded(linear_layers)
    method = config.get_quant_method(layer, "model.layers.0.mlp.gate_up_proj")
    assert calls == ["get_quant_method"]
    assert (type(method).__name__ == "HKLinearMethod") == (not first)
    assert not first or layer.hk_left == f"Fp8Config.get_quant_method is {THEIRS}"
