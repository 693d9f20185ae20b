"""LM heads of either engine in the format that is asked for, and a rank's heads of attention.

A head computes from a table of its own or from the embedding's, takes new weights, and may hold a
shard of the vocabulary. Some requests are refused. test_rotated.py tests the columns of a layer
that a rank holds.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend.devices import device_for
from hk_backend.engine.linear.heads import Head
from hk_backend.engine.linear.options import FORMATS_OF
from hk_backend.engine.linear.route import is_attached
from hk_backend.engine.linear.shards import CheckpointError
from hk_backend.engine.linear.shared_table import DRAFTS, LORA, OWN_TABLE
from hk_backend.ops.head_format import EMBEDDING_KEY, HEAD_KEY, HEADS, IN_HEAD, KEPT
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK
from tests.integration.adapter import LINEAR
from tests.integration.shared.checkpoints import LAYERS, Scheme, Shards
from tests.integration.shared.checkpoints.scheme import Layer
from tests.integration.shared.linear.devices import CPU, DEVICES, GFX950, in_schemes, on_gfx950
from tests.integration.shared.linear.heads import (
    VOCABULARY,
    assert_computes,
    assert_looks_up,
    table,
)
from tests.integration.shared.linear.layers import check_shards
from tests.ops import linear_cases

pytestmark = pytest.mark.usefixtures("linear_route")


QUANTISED = tuple(format for format in HEADS if format not in (KEPT, "fp8_e4m3fnuz"))
SERVED = [
    *((device, KEPT) for device in DEVICES),
    *((CPU, format) for format in QUANTISED),
    *((GFX950, format) for format in QUANTISED if FORMATS[format].is_fp8),
]
in_formats = pytest.mark.parametrize(("device", "format"), SERVED, indirect=["device"])
quantised = pytest.mark.parametrize("format", QUANTISED)


@in_formats
@pytest.mark.parametrize("tied", [False, True])
def test_a_head_in_a_format(device: str, format: str, tied: bool) -> None:
    """A head leaves its table alone, and a second round of processing changes nothing.

    New weights go into the memory that graphs hold, without another request for a format.
    """
    model = LINEAR.headed(Head(format), table(), tied=tied)
    model.lm_head.quant_method.process_weights_after_loading(model.lm_head)
    packed = model.lm_head.hk_packed
    assert packed.format == ("bf16" if format == KEPT else format)
    assert packed.layout == device_for("cpu").weight_layout
    assert_computes(LINEAR, model, table(), format)
    assert torch.equal(model.lm_head.weight[:VOCABULARY], table())
    if tied:
        ids, embedding = torch.tensor([VOCABULARY - 1, 0]), model.embed_tokens
        assert torch.equal(embedding.quant_method.embedding(embedding, ids), table()[ids])
    if format != KEPT:
        with pytest.raises(AssertionError):  # a scale that is off by one step is seen
            assert_computes(LINEAR, model, table(), format, steps=1)
    held = {name: each.data_ptr() for name, each in packed.tensors().items()}
    LINEAR.update(model, table(seed=5))
    packed = model.lm_head.hk_packed
    assert {name: each.data_ptr() for name, each in packed.tensors().items()} == held
    assert_computes(LINEAR, model, table(seed=5), format)


@quantised
def test_an_embedding_in_the_head(format: str) -> None:
    """The embedding looks its rows up in the head: when compiled, too, and after new weights."""
    model = LINEAR.headed(Head(format, IN_HEAD), table(), tied=True)
    assert model.why_table_stays == ""
    for layer in (model.embed_tokens, model.lm_head):  # a second time, there is nothing to do
        layer.quant_method.process_weights_after_loading(layer)
    address = model.lm_head.hk_data.data_ptr()
    assert_looks_up(model, table(), format)
    assert_computes(LINEAR, model, table(), format)
    embedding, ids = model.embed_tokens, torch.tensor([3, 200])
    look_up = embedding.quant_method.embedding
    compiled: Any = torch.compile(look_up, backend="eager", fullgraph=True)
    assert torch.equal(compiled(embedding, ids), look_up(embedding, ids))
    for seed in (5, 6):
        LINEAR.update(model, table(seed))
        assert model.lm_head.hk_data.data_ptr() == address == model.embed_tokens.hk_data.data_ptr()
        assert_looks_up(model, table(seed), format)
        assert_computes(LINEAR, model, table(seed), format)


@pytest.mark.parametrize("number", [0, 1])
def test_an_embedding_on_two_ranks(number: int) -> None:
    """Rows of other ranks are looked up as row 0, and become zero."""
    head = Head("mxfp6_e2m3", IN_HEAD)
    model = LINEAR.headed(head, table(), tied=True, number=number, ranks=2)
    own = table().split(160)[number]
    assert_looks_up(model, own, head.format)
    assert_computes(LINEAR, model, own, head.format)


@pytest.mark.parametrize(("tied", "why"), [(True, DRAFTS), (True, LORA), (False, "")])
def test_a_table_that_stays(tied: bool, why: str) -> None:
    """The table stays if somebody else may read it, or if it is not the embedding's."""
    model = LINEAR.headed(Head("mxfp8", IN_HEAD), table(), tied=tied, why=why)
    assert model.why_table_stays == (why or OWN_TABLE)
    assert torch.equal(model.lm_head.weight[:VOCABULARY], table())
    assert_computes(LINEAR, model, table(), "mxfp8")


# -- requests of a configuration


@pytest.mark.parametrize("method", FORMATS_OF)
@pytest.mark.parametrize("head", ["mxfp8", 16])
def test_a_method_that_asks(method: str, head: str | int) -> None:
    """`ignore` is about layers of one kind. It names the head, as quantize writes it, and the head
    gets its format nevertheless."""
    config = {"quant_method": method, "head": head, "ignore": ["lm_head"]}
    assert LINEAR.head_requested_by(config).format == str(head)
    assert LINEAR.config_of(config).options.head == str(head)


UNKNOWN = f"expected one of {', '.join(HEADS)}"
NOT_QUANTISED = "the head is not quantised: expected 16, or a format of the head"


@pytest.mark.parametrize(
    ("key", "option", "value", "why"),
    [
        *((HEAD_KEY, "head", value, UNKNOWN) for value in ("fp8", "bf16", 8, True)),
        (EMBEDDING_KEY, "embedding", IN_HEAD, NOT_QUANTISED),
    ],
)
def test_what_cannot_be_asked_for(key: str, option: str, value: Any, why: str) -> None:
    for asker, config in (
        (f"quantization_config: {key}", {"quant_method": "fp8", key: value}),
        (f"hk_fp8: {option}", {"quant_method": "hk_fp8", option: value}),
    ):
        with pytest.raises(ValueError) as error:
            LINEAR.head_requested_by(config)
        assert str(error.value) == f"{asker} {value!r} is not valid: {why}"


@on_gfx950
def test_what_a_device_has_no_kernels_for(device: str) -> None:
    """float16 lacks the range of MX scales, which bfloat16 has."""
    why = "hk_head 'mxfp8' is not valid: gfx950 has no kernels for activations 'none' in torch.fl"
    of_model = {"quant_method": "fp8", HEAD_KEY: "mxfp8"}
    with pytest.raises(ValueError, match=f"{why}.*expected one of 16, fp8_e4m3fn, mxfp4$"):
        LINEAR.head_requested_by(of_model, torch.float16)
    assert LINEAR.head_requested_by(of_model).format == "mxfp8"
    why = "gfx950 has no kernel that looks up rows of a packed weight: expected 16$"
    with pytest.raises(ValueError, match=f"{EMBEDDING_KEY} 'head' is not valid: {why}"):
        LINEAR.head_requested_by(
            {"quant_method": "fp8", HEAD_KEY: "fp8_e4m3fn", EMBEDDING_KEY: IN_HEAD},
        )


def test_a_table_that_cannot_be_packed() -> None:
    broken = table()
    broken[3, 5] = torch.nan
    with pytest.raises(CheckpointError, match=r"lm_head\.weight: nan at \[3, 5\] is not valid"):
        LINEAR.headed(Head("mxfp8"), broken)
    with pytest.raises(ValueError, match=r"'mxfp4' is not valid: 88 input features are not a pos"):
        LINEAR.headed(Head("mxfp4"), table()[:, :88].contiguous())


# -- q, k and v that eight ranks share, with a head of keys for each rank or one for four


RANKS, QUERY_HEADS = 8, 16
K = 448
"""Input features of a rank: an eighth of 3584, and 7 halves of a kernel's step."""
PLAIN = Scheme("not quantised", lambda w: Layer({"weight": w.bfloat16()}, w), {}, format="bf16")
SCALES = "fp8-static", "fp8-block", "ct-channel-token", "ct-mxfp4", "quark-mxfp6_e2m3", "hk-mxfp8"
ROTATED = "hk-mxfp4-mxfp6_e2m3-rotated", "ct-mxfp4-transform"
SCHEMES = {PLAIN.name: PLAIN} | {name: LAYERS[name] for name in (*SCALES, *ROTATED)}
"""Schemes for each way to store scales, since ranks cut those differently, and rotated ones."""


@pytest.mark.parametrize("number", [0, 5])
@pytest.mark.parametrize("kv_heads", [8, 2])
@in_schemes(SCHEMES)
def test_heads_of_eight_ranks(device: str, name: str, kv_heads: int, number: int) -> None:
    scheme, heads = SCHEMES[name], {"q": QUERY_HEADS, "k": kv_heads, "v": kv_heads}
    # scales of blocks need whole blocks
    head, k = (FP8_BLOCK, 2 * FP8_BLOCK) if scheme.scale_kind == "block" else (16, K)
    config = LINEAR.config_of(scheme.config) if scheme.config else None
    mine: Shards = {}
    with LINEAR.on_rank(number, RANKS, device) as make:
        arguments = k, head, QUERY_HEADS, kv_heads
        layer = make("QKVParallelLinear", *arguments, quant_config=config, prefix="model.some_proj")
    for seed, (shard, count) in enumerate(heads.items()):
        values = torch.randn(count * head, k, generator=torch.Generator().manual_seed(seed))
        values *= 4.0**-seed * torch.linspace(0.5, 2.0, len(values))[:, None]
        tensors = dict(scheme.layer(values).tensors)
        if scheme.static:
            tensors["input_scale"] = torch.tensor(0.01 + 0.005 * seed)
        each = max(count // RANKS, 1)
        first = number * count // RANKS // each * each
        for parameter, value in tensors.items():
            held = layer.get_parameter(parameter)
            held.weight_loader(held, value, shard)
            of_a_head = len(value) // count if value.numel() > 1 else 0
            rows = slice(first * of_a_head, (first + each) * of_a_head)
            mine.setdefault(parameter, []).append(value[rows] if of_a_head else value)
    layer.quant_method.process_weights_after_loading(layer)
    assert is_attached(layer)
    x = torch.randn(7, k, generator=torch.Generator().manual_seed(1)).bfloat16()
    if scheme is PLAIN:
        expected = [linear_cases.Layer(x, each, "bf16", None) for each in mine["weight"]]
    else:
        expected = scheme.layers(x, mine)
    check_shards(expected, layer.quant_method.apply(layer, x))
