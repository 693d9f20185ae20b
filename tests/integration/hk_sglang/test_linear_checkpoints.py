"""Layers of quantised checkpoints in SGLang's own ways, contests with SGLang, and whole models.

One whole model is damaged; of another, SGLang's API shows the weights. It is a Llama with one table
for the LM head and the embedding, from a checkpoint that holds both. SGLang's model has one module
for both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang import ranks
from hk_sglang.linear import model
from hk_sglang.linear.head import share_table
from hk_sglang.linear.stock import _loader_for
from safetensors.torch import load_file
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.environ import envs
from sglang.srt.layers.quantization.fp8 import Fp8LinearMethod
from sglang.srt.layers.quantization.unquant import F
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.model_executor.model_runner_components.weight_exporter import WeightExporter
from sglang.srt.model_loader.loader import DefaultModelLoader, get_model_loader
from sglang.srt.runtime_context import get_parallel

from hk_backend import reference
from hk_backend.engine.evidence import ALONE
from hk_backend.engine.linear.heads import KEPT_HEAD, Head
from hk_backend.engine.linear.route import is_attached
from hk_backend.ops.head_format import IN_HEAD
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.hk_sglang.linear_layers import config_of
from tests.integration.shared.checkpoints import SCHEMES, K, Scheme, make, x_of
from tests.integration.shared.checkpoints.damage import DAMAGES, Damage
from tests.integration.shared.evidence import Bench
from tests.integration.shared.linear.devices import in_schemes, on_devices
from tests.integration.shared.linear.layers import (
    KIND,
    assert_computes,
    check_shards,
    layer_of,
    left,
    loaded,
    weights,
)
from tests.integration.shared.linear.named_tensors import ATTENTION, named
from tests.models import tiny_llama

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


ROUNDED = {
    "fp8-static": "tensor",
    "fp8-dynamic": "token",
    "fp8-block": "token_block",
    "ct-channel-token": "token",
    "quark-channel-token": "token",
    "w8a8_fp8": "token",
    "quark-block": "token_block",
}
"""Checkpoints, and what shares a scale of the codes that SGLang's fused kernels make for them."""


@pytest.mark.parametrize("rest", [(), (torch.float16,), (torch.zeros(9, K),)], ids=len)
@in_schemes(CHECKPOINTS, ROUNDED)
def test_codes_that_a_model_has_made(device: str, name: str, rest: tuple[Any, ...]) -> None:
    """HK takes a fused kernel's tuple: codes, their scales, and the rows or their dtype."""
    scheme = CHECKPOINTS[name]
    layer = layer_of(linear_layers, scheme)
    codes, scales = reference.quantize_fp8(x_of(), ROUNDED[name])
    out, _ = layer((codes, 3 * scales, *rest))
    assert out.dtype == (torch.float16 if rest == (torch.float16,) else torch.bfloat16)
    check_shards(scheme.of_codes(codes, 3 * scales, out.dtype), out)


@pytest.mark.parametrize("name", ["fp8-block", "mxfp8"])
def test_the_other_name_of_a_scale(name: str) -> None:
    """Some of SGLang's models and loaders rename weight_scale_inv to weight_scale, or back."""
    scheme = CHECKPOINTS[name]
    shards = scheme.tensors()
    names = {"weight_scale": "weight_scale_inv", "weight_scale_inv": "weight_scale"}
    renamed = {names.get(each, each): value for each, value in shards.items()}
    layer = layer_of(linear_layers, scheme, renamed)
    check_shards(scheme.layers(x_of(), shards), layer(x_of())[0])


@pytest.mark.parametrize("name", ["ct-channel-token", "fp8-block", "hk-mxfp4"])
@pytest.mark.parametrize("kind", ["weight", "scale"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_tensor_of_another_shape(name: str, kind: str, axis: int) -> None:
    """SGLang would fill missing rows with zeros, so HK refuses the tensor."""
    scheme = CHECKPOINTS[name]
    tensors = named(scheme.tensors())
    broken = f"{ATTENTION}.k_proj.{getattr(scheme, kind)}"
    tensors[broken] = tensors[broken].narrow(axis, 0, tensors[broken].shape[axis] - 1)
    with pytest.raises(ValueError, match="cannot be loaded") as error:
        linear_layers.loaded(config_of(scheme.config), tensors)
    shape = f"{broken}: {tensors[broken].dtype} {list(tensors[broken].shape)}"
    assert str(error.value).startswith(shape)


# -- measured beside SGLang's own way, which works as it does without HK


def test_a_failing_kernel_of_sglangs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layer stays SGLang's, with the reason, whatever happens to it there."""
    with monkeypatch.context() as patch:
        patch.setattr(F, "linear", lambda *_: 1 / 0)
        layer = loaded(linear_layers)
    why = f"{KIND}: not measured: ZeroDivisionError: division by zero"
    assert left(linear_layers, layer) == why
    assert_computes(layer, torch.cat(weights()))


def test_requests_run_when_the_scheduler_begins(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is measured once requests run, and one line says what was measured until then."""
    loaded(linear_layers)
    with caplog.at_level("INFO"), pytest.raises(AttributeError):  # SimpleNamespace has no more
        Scheduler.run_event_loop(SimpleNamespace(device="cuda"))
    [line] = [each for each in caplog.messages if "measured 1 kind of linear layers" in each]
    assert "1 by HK, 0 by SGLang" in line
    other = loaded(linear_layers, torch.float16)
    assert left(linear_layers, other).endswith("requests run already")
    assert len(bench.rows) == 1


@pytest.fixture
def fp8_by_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SGLang's method for FP8 compute on this CPU, in plain torch."""

    def apply(method: Any, layer: Any, x: torch.Tensor, bias: Any = None) -> torch.Tensor:
        scales = layer.weight_scale.repeat_interleave(torch.tensor(layer.logical_widths))
        out = reference.linear(x, layer.weight, "fp8_e4m3fn", scales[:, None], activations="tensor")
        return out.to(x.dtype)

    process = "process_weights_after_loading"
    monkeypatch.setattr(Fp8LinearMethod, process, lambda method, layer: None)
    monkeypatch.setattr(Fp8LinearMethod, "apply", apply)


@pytest.mark.parametrize("by_hk", [True, False])
def test_the_faster_one_gets_a_quantised_layer(
    bench: Bench, fp8_by_sglang: None, by_hk: bool
) -> None:
    """HK and SGLang compute from the same random codes and scales, before a tensor is loaded.

    The method of the faster one then makes the layer's parameters, and the checkpoint's tensors go
    into those.
    """
    if not by_hk:
        bench.let_the_engine_win()
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    layer = layer_of(linear_layers, checkpoint)
    assert is_attached(layer) is by_hk
    assert bench.rows[0][:4] == (1, 8, 64, 512)
    for ours, theirs in bench.outputs.values():
        assert ours.any()
        assert largest_error(ours, theirs.double()) <= tolerance(torch.bfloat16)
        assert largest_error(ours * 1.02, theirs.double()) > tolerance(torch.bfloat16)
    if not by_hk:
        assert type(layer.quant_method).__name__ == "Fp8LinearMethod"
        kind = "fp8_e4m3fn 512x256 from bfloat16, activations tensor, scales tensor"
        why = f"faster without HK: linear {kind}: 1 row: HK 2 us, the engine 1 us"
        assert left(linear_layers, layer) == why
    x = x_of()
    expected = checkpoint.expected(x, checkpoint.tensors())
    out = layer.quant_method.apply(layer, x)
    assert largest_error(out, expected) <= tolerance(torch.bfloat16)


def test_a_quantised_layer_that_only_hk_computes(bench: Bench, any_checkpoint: Scheme) -> None:
    """HK serves the layer unmeasured: no method of SGLang's for it runs on this CPU."""
    bench.let_the_engine_win()
    assert is_attached(layer_of(linear_layers, any_checkpoint))
    assert not bench.rows


@pytest.mark.parametrize(("size", "alone"), [(1, True), (2, False)])
def test_a_group_of_one_rank_is_alone(
    size: int, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parallel = SimpleNamespace(tp_group=SimpleNamespace(world_size=size))
    monkeypatch.setattr(ranks, "get_parallel", lambda: parallel)
    assert (ranks.tensor_parallel() is ALONE) == alone


@pytest.mark.parametrize(
    ("scheme", "loader"),
    [
        (None, "weight_loader"),
        (SimpleNamespace(requires_weight_loader_v2=False), "weight_loader"),
        (SimpleNamespace(requires_weight_loader_v2=True), "weight_loader_v2"),
    ],
)
def test_a_stand_in_has_the_loader_that_sglang_would_choose(scheme: Any, loader: str) -> None:
    layer = SimpleNamespace(weight_loader="weight_loader", weight_loader_v2="weight_loader_v2")
    layer.scheme = scheme
    assert _loader_for(SimpleNamespace(), layer) == loader


# -- whole models from disk, by SGLang's own loader


HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
IN_THE_HEAD = Head("mxfp8", IN_HEAD)


@pytest.fixture
def places() -> Iterator[None]:
    alone = SimpleNamespace(is_first_rank=True, is_last_rank=True, rank_in_group=0, world_size=1)
    with get_parallel().override(pp_rank=0, pp_group=alone):
        yield


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tiny_llama(tmp_path_factory.mktemp("tied"), 64)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    return path


def whole_of(path: Path, dtype: str = "float32") -> Any:
    """The model of a checkpoint, as SGLang's loader returns it."""
    config = ModelConfig(str(path), dtype=dtype)
    loader = get_model_loader(LoadConfig(), config)
    return loader.load_model(model_config=config, device_config=DeviceConfig("cpu"))


def by_name(whole: Any, name: str) -> Any:
    """The first values of a weight, as SGLang's API shows them."""
    exporter: Any = SimpleNamespace(
        get_model=lambda: whole, tp_size=1, _weight_export_unsupported_reason=lambda: None
    )
    return WeightExporter.get_weights_by_name(exporter, name, 5)


@pytest.mark.parametrize("item", DAMAGES, ids=str)
def test_a_damaged_checkpoint(item: Damage, tied: Path, places: None, tmp_path: Path) -> None:
    """The model is not loaded, and the error says which tensor is wrong and how."""
    scheme = SCHEMES[item.scheme]
    path = item.make(make(scheme, tied, tmp_path).checkpoint, tmp_path / str(item))
    with pytest.raises(ValueError) as error:
        whole_of(path, scheme.dtypes[-1])
    assert str(error.value).startswith(item.name)
    assert re.search(item.says, str(error.value))


@on_devices
def test_weights_by_their_names(
    device: str, tied: Path, tmp_path: Path, places: None, caplog: pytest.LogCaptureFixture
) -> None:
    """SGLang's API shows the checkpoint's weights of a model whose layers HK has packed.

    It shows none of a quantised model.
    """
    whole, tensors = whole_of(tied, "bfloat16"), load_file(tied / "model.safetensors")
    for module in ("self_attn.q_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        name = f"model.layers.1.{module}.weight"
        assert by_name(whole, name) == tensors[name].bfloat16().float().tolist()[:5]
    assert all(layer.weight.numel() == 0 for layer in whole.modules() if hasattr(layer, "hk_left"))
    made = make(SCHEMES["ct-channel-token"], tied, tmp_path)
    quantised = whole_of(made.checkpoint, "bfloat16")
    assert by_name(quantised, "model.layers.1.self_attn.k_proj.weight") is None
    assert "k_proj.weight: HK has it packed, in a quantised format" in caplog.text


@pytest.mark.parametrize("name", [HEAD, EMBEDDING])
def test_a_table_by_its_name(
    name: str, tied: Path, places: None, caplog: pytest.LogCaptureFixture
) -> None:
    """SGLang's API shows the table under both names, or HK says that the table is gone."""
    tensors = load_file(tied / "model.safetensors")
    assert not torch.equal(tensors[HEAD], tensors[EMBEDDING])
    for asked in (KEPT_HEAD, IN_THE_HEAD):
        found = by_name(with_head(tied, asked), name)
        expected = tensors[EMBEDDING][:5].tolist() if asked is KEPT_HEAD else None
        assert found == expected
    assert f"{name}: HK has it packed, in a quantised format" in caplog.text


def with_head(path: Path, asked: Head) -> Any:
    whole = whole_of(path)
    model.account(whole, asked)
    assert share_table(whole, asked, "") == ""
    return whole


@pytest.mark.parametrize("asked", [KEPT_HEAD, IN_THE_HEAD], ids=["kept", "in-head"])
@pytest.mark.parametrize("order", [(HEAD, EMBEDDING), (EMBEDDING, HEAD)], ids=["first", "last"])
@pytest.mark.parametrize("second_loader", [False, True])
def test_an_update_of_a_tied_table(
    asked: Head, order: tuple[str, str], second_loader: bool, tied: Path, places: None
) -> None:
    """SGLang's Llama has two ways to load, and skips the head's own tensor in both."""
    tensors = load_file(tied / "model.safetensors")
    new = {name: tensor.flip(0).contiguous() for name, tensor in tensors.items()}
    arriving = [*order, *({*new} - {*order})]
    with envs.SGLANG_ENABLE_WEIGHT_LOADER_V2.override(second_loader):
        whole = with_head(tied, asked)
        assert_is(whole, tensors[EMBEDDING])
        DefaultModelLoader.load_weights_and_postprocess(
            whole, ((name, new[name]) for name in arriving), torch.device("cpu")
        )
    assert_is(whole, new[EMBEDDING])


def assert_is(whole: Any, table: torch.Tensor) -> None:
    """Hold that the logits are those of `table`, within the rounding of a format with 8 bits."""
    x = torch.randn(5, table.shape[1], generator=torch.Generator().manual_seed(0))
    exact = x @ table.T
    found = linear_layers.logits(whole, x)[:, : len(table)]
    assert (found - exact).norm() < 0.05 * exact.norm()
