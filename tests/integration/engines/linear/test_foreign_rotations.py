"""Rotations that other tools write, for either engine: compressed-tensors' and auto-round's.

HK serves those that its layers can do. An engine keeps what it can do without HK, and stops at the
rest: nothing is lost, and nothing is rotated twice.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from hk_backend.engine.linear.heads import KEPT_HEAD
from hk_backend.engine.linear.rotated import AUTO_ROUND_KEY, TRANSFORMS_KEY, TWICE, RotationError
from hk_backend.engine.linear.shards import CheckpointError
from hk_backend.reference.rotation import ROTATIONS, rotated
from tests.integration.adapter import LINEAR, PLUGIN
from tests.integration.shared.checkpoints import LAYERS, WIDTHS, Scheme, compressed, x_of
from tests.integration.shared.linear.devices import in_schemes
from tests.integration.shared.linear.heads import table
from tests.integration.shared.linear.layers import check_shards, layer_of
from tests.integration.shared.linear.named_tensors import named
from tests.integration.shared.linear.rotated import NAME, refused, row_parallel
from tests.ops.linear_oracle import check_result

pytestmark = pytest.mark.usefixtures("linear_route")

NAMES = [name for name, scheme in LINEAR.CHECKPOINTS.items() if scheme.rotation]
SCHEME, PLAIN = LAYERS["ct-mxfp4-transform"], LAYERS["ct-mxfp4"]
MATRIX = "v_input.weight"
IS_VLLM = PLUGIN == "hk_vllm"
THEIRS = "vLLM does none on CPUs" if IS_VLLM else "SGLang ignores it"


@pytest.mark.parametrize("block", ROTATIONS)
def test_the_librarys_matrix(block: int) -> None:
    """compressed-tensors' transforms are HK's rotation, of weights and of inputs."""
    generator = torch.Generator().manual_seed(block)
    weight, x = torch.randn(2, 24, 256, generator=generator, dtype=torch.float64)
    layer = compressed.transformed(
        compressed.transforms(head_dim=block, precision="float64"), weight
    )
    assert torch.allclose(layer.weight, rotated(weight, block), rtol=0, atol=1e-13)
    seen = []
    layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    assert torch.allclose(layer(x), x @ weight.T, rtol=0, atol=1e-11)
    assert torch.allclose(seen[0], rotated(x, block), rtol=0, atol=1e-13)
    assert not torch.allclose(seen[0], x, atol=1), "a rotation that is lost would be seen"


@pytest.mark.parametrize("ranks", [1, 2, 8])
@in_schemes(LINEAR.CHECKPOINTS, NAMES)
def test_columns_of_ranks(device: str, name: str, ranks: int) -> None:
    """The last of several ranks rotates its own input features, in whole blocks."""
    scheme, k, number = LINEAR.CHECKPOINTS[name], 8 * max(ROTATIONS), ranks - 1
    generator = torch.Generator().manual_seed(ranks)
    whole = scheme.layer(torch.randn(WIDTHS[0], k, generator=generator)).tensors
    layer = row_parallel(LINEAR, scheme.config, number, whole, k, ranks, device=device)
    held = scheme.weight, scheme.scale
    mine = {each: [whole[each].chunk(ranks, 1)[number].contiguous()] for each in held}
    x = x_of(k // ranks)
    [shard] = scheme.layers(x, mine)
    out = layer.quant_method.apply(layer, x)
    check_result(shard, out)
    shard.x = rotated(x, scheme.rotation).bfloat16()
    with pytest.raises(AssertionError):
        check_result(shard, out)  # inputs that are rotated twice would be seen


@pytest.mark.parametrize(("ranks", "k"), [(8, 256), (2, 192)])
def test_a_block_on_two_ranks(ranks: int, k: int) -> None:
    why = f"{k // ranks} input features on each of {ranks} ranks are not a multiple of the rotation"
    with pytest.raises(RotationError, match=rf"model\.o_proj: .*{TRANSFORMS_KEY}.*{why}, 64"):
        row_parallel(LINEAR, SCHEME.config, 0, {}, k, ranks)


# -- the matrices that a checkpoint holds


def with_matrices(matrix: torch.Tensor | None, *shards: str) -> dict[str, torch.Tensor]:
    found = {name: each for name, each in named(SCHEME.tensors()).items() if MATRIX not in name}
    parent = NAME.rpartition(".")[0]
    return found | {f"{parent}.{shard}.{MATRIX}": matrix for shard in shards if matrix is not None}


@pytest.mark.parametrize("shards", [(), ("q_proj",), ("q_proj", "k_proj", "v_proj")])
def test_matrices_that_layers_share(shards: tuple[str, ...]) -> None:
    """A file holds a matrix that layers share once, so other layers have none."""
    tensors = with_matrices(compressed.matrices(compressed.transforms())[MATRIX], *shards)
    layer = LINEAR.loaded(LINEAR.config_of(SCHEME.config), tensors)
    check_shards(SCHEME.layers(x_of(), SCHEME.tensors()), LINEAR.forward(layer, x_of()))


def test_a_matrix_of_another_rotation() -> None:
    matrix = compressed.matrices(compressed.transforms())[MATRIX]
    signs = matrix.clone()
    signs[:, 3] *= -1
    for other in (signs, matrix[:32, :32], matrix.roll(1, 0), torch.zeros(64, 64)):
        with pytest.raises(CheckpointError, match=rf"{NAME}\.{MATRIX} is not valid: expected the "):
            LINEAR.loaded(LINEAR.config_of(SCHEME.config), with_matrices(other, "k_proj"))


@pytest.mark.parametrize("more", [(), (MATRIX,)])
def test_new_weights(more: tuple[str, ...]) -> None:
    """A layer takes other weights, with its matrix or without."""
    layer, other = layer_of(LINEAR, SCHEME), SCHEME.tensors()
    other["weight_packed"] = [each.flip(0) for each in other["weight_packed"]]
    given = {name: other[name] for name in ("weight_packed", "weight_scale", *more)}
    LINEAR.reload(layer, given)
    check_shards(SCHEME.layers(x_of(), other), LINEAR.forward(layer, x_of()))


# -- rotations that are in the weights, or cancel


def written(*sides: str, **scheme: Any) -> dict[str, Any]:
    """The configuration of a scheme at these locations, for linear layers or for attention."""
    apply = [
        {"targets": ["re:.*self_attn$" if side in ("q_attn", "k_cache") else "Linear"]}
        | {"location": side, "inverse": False, "ignore": ["re:.*lm_head"]}
        for side in sides
    ]
    return {"config_groups": {"u": {"type": "hadamard", "apply": apply, "head_dim": 64} | scheme}}


@pytest.mark.parametrize(
    "found",
    [
        written("weight_input", "weight_output", type="random-hadamard", head_dim=None),
        written("q_attn", "k_cache"),
        {"config_groups": {}},
        None,
    ],
)
@pytest.mark.parametrize("name", ["ct-mxfp4", "ct-channel-token", "ct-mxfp4-rotated"])
def test_what_needs_nothing(name: str, found: Any) -> None:
    scheme = LAYERS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scheme.config, TRANSFORMS_KEY, found)
        layer = layer_of(LINEAR, scheme)
    assert layer.hk_packed.rotation == scheme.rotation
    check_shards(scheme.layers(x_of(), scheme.tensors()), LINEAR.forward(layer, x_of()))


# -- refused


def why(scheme: Scheme, found: Any, **more: Any) -> str:
    return refused(LINEAR, deepcopy(scheme.config) | {TRANSFORMS_KEY: found} | more)


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (written("input", type="random-hadamard"), "type 'random-hadamard'"),
        (written("input", type="random-matrix"), "type 'random-matrix'"),
        (written("input", type="other"), "type 'other'"),
        (written("input", randomize=True), "randomize True"),
        (written("input", head_dim=16), "head_dim 16"),
        (written("input", head_dim=None), "head_dim None"),
        (written("output"), "location 'output'"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_transform_that_hk_does_not_do(found: Any, named: str) -> None:
    """The message names the entry, its value and what HK has, and why the engine does not help."""
    told = why(PLAIN, found)
    start = f"{NAME}: {TRANSFORMS_KEY} 'u': {named} is not served by HK, which has "
    assert told.startswith(start)
    assert told.endswith(f"; {THEIRS}")


def test_two_transforms() -> None:
    told = why(PLAIN, written("input", "output"))
    assert f"{TRANSFORMS_KEY} has u_input and u_output for it: HK does one" in told
    told = why(LAYERS["ct-mxfp4-rotated"], written("input"))
    assert told.endswith(f"64), and nothing but HK can serve it: {TWICE}")


@pytest.mark.parametrize("name", ["ct-channel-token", "ct-block", "unquantised"])
def test_weights_that_hk_does_not_rotate_before(name: str) -> None:
    """HK rotates before MX weights. FP8 and 16 bits would need an engine that transforms."""
    more = {"ignore": ["re:.*_proj"]} if name == "unquantised" else {}
    told = why(LAYERS.get(name, PLAIN), written("input"), **more)
    assert told.startswith(f"{NAME}: ")
    assert TRANSFORMS_KEY in told
    of_sglang = "is not quantised" if more else "rotates no activations before a weight in fp8"
    assert (f"MX formats alone; {THEIRS}" if IS_VLLM else of_sglang) in told


def test_shards_with_different_transforms() -> None:
    found = written("input")
    found["config_groups"]["u"]["apply"][0]["ignore"] = ["re:.*v_proj"]
    told = why(PLAIN, found)
    assert f"{TRANSFORMS_KEY} of its shards: " in told
    assert ".k_proj ['u_input'], " in told
    assert ".v_proj []: they run as one layer, so expected one" in told


@pytest.mark.parametrize(
    ("found", "more", "named"),
    [
        (written("k_cache"), {}, "'u': location 'k_cache' is not valid: no engine rotates"),
        (written("q_attn"), {}, "'u': location 'q_attn' is not valid: no engine rotates"),
        (
            written("q_attn", "k_cache"),
            {"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}},
            "'u': location 'q_attn' is not valid with a kv_cache_scheme, made for rotated keys",
        ),
        (written("input", block=64), {}, r"config_groups\.u\.block\n  Extra inputs are not"),
        (written("weight"), {}, r"config_groups\.u\.apply\.0\.location\n  Input should be "),
        ({"groups": {}}, {}, "groups\n  Extra inputs are not permitted"),
    ],
)
def test_what_no_engine_does(found: Any, more: dict[str, Any], named: str) -> None:
    """The model's configuration is refused, whatever its layers are."""
    with pytest.raises(RotationError, match=f"(?s)^{TRANSFORMS_KEY}.*{named}"):
        LINEAR.config_of(deepcopy(PLAIN.config) | {TRANSFORMS_KEY: found} | more)


def test_experts_and_a_head() -> None:
    config, found = deepcopy(PLAIN.config), written("input")
    found["config_groups"]["u"]["apply"][0]["ignore"] = []
    config = LINEAR.config_of(config | {"ignore": ["re:.*"], TRANSFORMS_KEY: found})
    name = "model.layers.0.mlp.experts"
    with pytest.raises(RotationError, match=f"{name}: {TRANSFORMS_KEY} has u_input for it"):
        config.get_quant_method(LINEAR.experts(), name)
    head = LINEAR.headed(KEPT_HEAD, table()).lm_head
    with pytest.raises(RotationError, match=f"lm_head: {TRANSFORMS_KEY} has u_input for it"):
        config.get_quant_method(head, "lm_head")


# -- auto-round


def rotation(**changed: Any) -> dict[str, Any]:
    return {AUTO_ROUND_KEY: LAYERS["ar-mxfp4-rotated"].config[AUTO_ROUND_KEY] | changed}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (rotation(hadamard_type="random_hadamard"), "rotation_config hadamard_type 'random_hada"),
        (rotation(backend="inplace"), "rotation_config backend 'inplace'"),
        (rotation(block_size=16), "rotation_config block_size 16"),
        (rotation(fuse_online_to_weight=True), "rotation_config fuse_online_to_weight True"),
        (rotation(location="input"), "rotation_config location 'input'"),
        (rotation() | {"data_type": "int"}, "rotation_config with data_type 'int'"),
        ({"hadamard_config": {"block_size": 256}}, "hadamard_config block_size 256"),
        ({"spinquant_config": {"r2": True}}, "spinquant_config online_r1_rotation True"),
        ({"spinquant_config": {"r1": False, "r3": True}}, "spinquant_config r3 True"),
        ({"spinquant_config": {"r1": False, "r4": True}}, "spinquant_config r4 True"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_another_rotation_of_auto_round(changed: dict[str, Any], named: str) -> None:
    """The checkpoint is refused, with the entry's name and what would be valid."""
    config = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": True} | changed
    with pytest.raises(RotationError, match=rf"^{named}.* is not valid: .*expected "):
        LINEAR.config_of(config)
