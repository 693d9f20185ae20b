"""The contracts with vLLM, one for each route: a break is seen and named, and nothing is patched.

The contract itself lists its entries; the tests break one of each kind. Other tests here hold that
another plugin's changes of vLLM's linear layers stay.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import make_dataclass
from typing import Any, ClassVar

import hk_vllm.attention.backend
import pytest
import torch
from hk_vllm.contract import BATCH_FIELDS, check_engine, check_parent
from hk_vllm.linear.contract import check_linear
from hk_vllm.linear.fp8_kernels import HKFp8LinearKernel
from hk_vllm.linear.install import register_linear
from hk_vllm.linear.kernel_lists import KERNELS
from vllm.model_executor.kernels import linear as lists
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
    FP8ScaledMMLinearKernel,
)
from vllm.model_executor.layers import linear, utils
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.quantization import (
    QUANTIZATION_METHODS,
    fp8,
    get_quantization_config,
    modelopt,
)
from vllm.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod
from vllm.model_executor.layers.quantization.utils import quant_utils
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.platforms import PlatformEnum
from vllm.v1.attention import backend
from vllm.v1.attention.backends import registry
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

from hk_backend.engine import loggers
from hk_backend.engine.linear.route import is_attached
from tests.integration.hk_vllm import linear_layers
from tests.integration.hk_vllm.restore import restored
from tests.integration.shared.contract import assert_refused, nothing, short
from tests.integration.shared.linear.layers import K, left, unloaded, values, weights
from tests.integration.shared.linear.other_plugin import THEIRS, exchanged, in_both_orders


@pytest.fixture(autouse=True)
def clean(linear_rank: None) -> Iterator[None]:
    loggers.info_once.cache_clear()
    with restored():
        yield


ENDS = "query_start_loc_cpu, is_prefilling"
BUILDER, IMPL = backend.AttentionMetadataBuilder, backend.AttentionImpl


def without(*missing: str) -> Any:
    """CommonAttentionMetadata with fields missing."""
    names = [name for name in BATCH_FIELDS.split(", ") if name not in missing]
    batch = make_dataclass("CommonAttentionMetadata", names)
    batch.replace = backend.CommonAttentionMetadata.replace
    return batch


@pytest.mark.parametrize(
    ("check", "owner", "name", "replacement", "named"),
    [
        (check_engine, backend, "CommonAttentionMetadata", without(*ENDS.split(", ")), ENDS),
        (check_engine, BUILDER, "build", lambda self, batch: None, "(self, batch)"),
        (check_engine, IMPL, "forward", lambda self, query: None, "(self, query)"),
        (check_engine, registry, "register_backend", lambda path: None, "(path)"),
        *(
            (check_linear, owner, name, nothing, "nothing(self), expected (")
            for owner, name in (
                (linear.UnquantizedLinearMethod, "apply"),
                (lists, "is_supported_and_can_implement_kernel"),
                (modelopt.ModelOptLinearMethod, "create_weights"),
                (ShardedStateLoader, "save_model"),
            )
        ),
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
        (check_engine, backend, "AttentionType"),
        (check_engine, BUILDER, "build_for_cudagraph_capture"),
        (check_engine, backend.AttentionBackend, "customize_spec"),  # vLLM 0.28 and older lack it
        (check_linear, lists, "_POSSIBLE_MXFP4_KERNELS"),
        (check_linear, linear, "LinearBase"),
        (check_linear, quant_utils.GroupShape, "is_per_token"),
    ],
    ids=short,
)
def test_something_missing(
    monkeypatch: pytest.MonkeyPatch, check: Any, owner: Any, name: str
) -> None:
    monkeypatch.delattr(owner, name)
    assert_refused(check, name)


def derived(of: str, **members: Any) -> Any:
    """Make the CPU backend's method `of` return a class derived from its own."""
    base = getattr(CPUAttentionBackend, of)()
    return {of: staticmethod(lambda: type("Derived", (base,), members))}


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"forward_includes_kv_cache_update": True}, "writes the KV cache itself"),
        ({"is_mla": classmethod(lambda cls: True)}, "latent attention"),
        (derived("get_impl_cls", do_kv_cache_update=lambda self, key: None), "(self, key)"),
        ({"get_impl_cls": staticmethod(lambda: IMPL)}, "do_kv_cache_update"),
        (derived("get_builder_cls", build=lambda self, batch: None), "(self, batch)"),
    ],
    ids=short,
)
def test_parents_that_cannot_be_wrapped(members: dict[str, Any], named: str) -> None:
    assert check_parent(CPUAttentionBackend)
    parent: Any = type("Parent", (CPUAttentionBackend,), members)
    assert_refused(lambda: check_parent(parent), named)
    original = registry.AttentionBackendEnum.CPU_ATTN.value
    assert named in hk_vllm.attention.backend._why_left(parent, original), "it stays as it is"


@pytest.mark.parametrize("name", ["CPU_ATTN", "HK_FLASH_ATTN", "HK_", "nothing"])
def test_only_known_parents_have_wrappers(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(hk_vllm.attention.backend, name)


def test_nothing_is_patched_if_it_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken contract leaves vLLM unpatched. A sound one patches it once, and stays sound."""
    with monkeypatch.context() as patch:
        patch.setattr(fp8.Fp8LinearMethod, "process_weights_after_loading", nothing)
        before = dict(vars(linear.UnquantizedLinearMethod)), list(QUANTIZATION_METHODS)
        assert register_linear().startswith("vLLM is not one the plugin knows: nothing(self)")
        assert dict(vars(linear.UnquantizedLinearMethod)) == before[0]
        assert before[1] == QUANTIZATION_METHODS
    assert register_linear() == ""
    changed = linear.UnquantizedLinearMethod.apply
    assert register_linear() == ""
    assert linear.UnquantizedLinearMethod.apply == changed
    assert check_engine("linear")


def test_options_and_layers_that_are_not_linear() -> None:
    """Options of a checkpoint that is not quantised are read, and other layers keep vLLM's methods.

    Attention layers take the scales of an FP8 cache from the checkpoint.
    """
    assert register_linear() == ""
    owner = get_quantization_config("hk_mxfp6")
    online = owner.from_config_dict_json('{"format": "mxfp6_e3m2", "activations": "none"}')
    found = (online.options.format, online.options.activations, online.serialized)
    assert found == ("mxfp6_e3m2", "none", False)
    config = get_quantization_config("hk_fp8")()
    layer = object.__new__(Attention)
    assert isinstance(config.get_quant_method(layer, "model.attn"), BaseKVCacheMethod)
    assert config.get_quant_method(torch.nn.Module(), "lm_head") is None


# -- changes of another plugin stay: products, and lists of kernels


LIST = HKFp8LinearKernel.listed_in


def loaded() -> Any:
    """A layer that HK leaves to the other plugin."""
    layer = linear_layers.load(unloaded(linear_layers), {"weight": weights()})
    assert not is_attached(layer)
    return layer


@in_both_orders
@pytest.mark.parametrize(
    ("module", "name"),
    [
        (linear, "dispatch_unquantized_gemm"),
        (utils, "cpu_unquantized_gemm"),
        (utils, "dispatch_cpu_unquantized_gemm"),
    ],
    ids=["the choice", "the product", "the preparation"],
)
def test_a_product(module: Any, name: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's methods look up their product at each call: the layer stays the other plugin's."""
    calls = exchanged(linear_layers, module, name, monkeypatch, first)
    layer = loaded()
    linear_layers.forward(layer, values((2, K)))
    assert f"is {THEIRS}" in left(linear_layers, layer)
    assert calls


def test_a_product_with_arguments_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial function gives the standard library as its module, so HK looks at the inner one."""

    def exchanged(scale: float, layer: Any, x: Any, weight: Any, bias: Any) -> Any:
        return torch.nn.functional.linear(scale * x, weight, bias)

    monkeypatch.setattr(utils, "cpu_unquantized_gemm", functools.partial(exchanged, 2.0))
    assert register_linear() == ""
    assert f"is another plugin's: {__name__}.exchanged" in left(linear_layers, loaded())


class OtherKernel(FP8ScaledMMLinearKernel):  # type: ignore[misc]
    listed_in: ClassVar[str] = LIST


@in_both_orders
@pytest.mark.parametrize("platform", [PlatformEnum.CPU, PlatformEnum.ROCM])
def test_a_kernel_at_the_head_of_a_list(first: bool, platform: Any, caplog: Any) -> None:
    """Whoever put the kernel there wants it asked first; HK comes next."""
    kernels = getattr(lists, LIST).setdefault(platform, [])
    with caplog.at_level("INFO", "vllm.hk_vllm.linear"):
        if first:
            kernels.insert(0, OtherKernel)
        assert register_linear() == ""
        if not first:
            kernels.insert(0, OtherKernel)
        register_linear()
    assert kernels[:2] == [OtherKernel, KERNELS[LIST]]
    said = f"{LIST}: {__name__}.OtherKernel, which another plugin put first, stays before HK's"
    assert (said in caplog.text) or not first
