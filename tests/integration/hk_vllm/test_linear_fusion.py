"""vLLM's own fusion of a norm with the rounding of what it gives to a linear layer of HK's.

The patterns are vLLM's, and find the layer in the graph that torch.compile makes of it; the fused
kernels, which vLLM has in its GPU builds only, are written in torch here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.post_grad import view_to_reshape
from torch._inductor.pattern_matcher import PatternMatcherPass
from vllm.compilation.passes.inductor_pass import enable_fake_mode, pass_context
from vllm.compilation.passes.utility.noop_elimination import NoOpEliminationPass
from vllm.config import get_current_vllm_config
from vllm.config.utils import Range
from vllm.model_executor.layers.layernorm import RMSNorm

from tests.integration.hk_vllm import linear_layers
from tests.integration.shared.checkpoints import LAYERS, K, x_of
from tests.integration.shared.linear.devices import CPU, GFX950, on_gfx950
from tests.integration.shared.linear.layers import check_shards, layer_of

pytestmark = pytest.mark.usefixtures("linear_route")

FP8 = torch.float8_e4m3fn
EPSILON = 1e-6
FUSED = {
    "fp8-static": "rms_norm_static_fp8_quant",
    "quark-tensor-static": "rms_norm_static_fp8_quant",
    "ct-channel-token": "rms_norm_dynamic_per_token_quant",
    "modelopt-channel-token": "rms_norm_dynamic_per_token_quant",
    "hk-fp8_e4m3fn": "rms_norm_dynamic_per_token_quant",
}
"""Checkpoints, and the kernel that serves the norm before a layer of theirs."""
SCHEMAS = (
    "rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor weight, Tensor scale, "
    "float epsilon) -> ()",
    "fused_add_rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor! residual, "
    "Tensor weight, Tensor scale, float epsilon) -> ()",
    "rms_norm_dynamic_per_token_quant(Tensor! result, Tensor input, Tensor weight, "
    "Tensor! scale, float epsilon, Tensor? scale_ub, Tensor!? residual) -> ()",
)
Made = list[tuple[str, torch.Tensor, torch.Tensor]]


@pytest.fixture(scope="module")
def calls() -> Iterator[Made]:
    """The fused kernels; their calls, each with the codes and scales that it made."""
    made: Made = []

    def normed(input: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        x = input.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight.float()

    def static(result: Any, input: Any, weight: Any, scale: Any, epsilon: float) -> None:
        result.copy_((normed(input, weight, epsilon) / scale).clamp(-448, 448).to(FP8))
        made.append(("rms_norm_static_fp8_quant", result.clone(), scale))

    def dynamic(result: Any, input: Any, weight: Any, scale: Any, epsilon: float, *_: Any) -> None:
        rows = normed(input, weight, epsilon)
        scale.copy_(rows.abs().amax(-1, keepdim=True) / 448)
        result.copy_((rows / scale).to(FP8))
        made.append(("rms_norm_dynamic_per_token_quant", result.clone(), scale.clone()))

    library = torch.library.Library("_C", "FRAGMENT")
    for schema in SCHEMAS:
        library.define(schema)
    library.impl("rms_norm_static_fp8_quant", static, "CPU")
    library.impl("rms_norm_dynamic_per_token_quant", dynamic, "CPU")
    yield made
    library._destroy()


@pytest.fixture(scope="module")
def patterns(calls: Made, linear_rank: None) -> PatternMatcherPass:
    """Those of vLLM's pass that need no kernel for groups of channels."""
    from vllm.compilation.passes.fusion import rms_quant_fusion

    found = PatternMatcherPass()

    @enable_fake_mode
    def register() -> None:
        rms_quant_fusion.RMSNormStaticQuantPattern(EPSILON, FP8).register(found)
        rms_quant_fusion.RMSNormDynamicQuantPattern(EPSILON, FP8).register(found)

    register()
    return found


def compiled(patterns: PatternMatcherPass, compute: Any, matched: list[int]) -> Any:
    """`compute`, with the patterns applied where Inductor would apply vLLM's passes."""
    without_views = NoOpEliminationPass(get_current_vllm_config())

    def compile_graph(graph: torch.fx.GraphModule, _: Any) -> Any:
        with pass_context(Range(1, 1024)):
            view_to_reshape(graph)
            without_views(graph.graph)
            matched.append(patterns.apply(graph.graph))
        graph.recompile()
        return graph.forward

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compile_graph, decompositions=select_decomp_table())
    return torch.compile(compute, backend=backend, fullgraph=True)


def run(name: str, patterns: PatternMatcherPass) -> tuple[torch.Tensor, list[int]]:
    """A norm and the layer behind it; how often a pattern matched."""
    layer = layer_of(linear_layers, LAYERS[name])
    norm = RMSNorm(K, EPSILON, dtype=torch.bfloat16)
    matched: list[int] = []
    whole = compiled(patterns, lambda x: layer.quant_method.apply(layer, norm(x)), matched)
    x = x_of()
    torch._dynamo.mark_dynamic(x, 0)
    return whole(x), matched


@on_gfx950
@pytest.mark.parametrize("name", FUSED)
def test_a_norm_and_its_rounding_stay_fused(
    name: str, device: str, patterns: PatternMatcherPass, calls: Made
) -> None:
    calls.clear()
    out, matched = run(name, patterns)
    assert matched == [1]
    [(kernel, codes, scales)] = calls
    assert kernel == FUSED[name]
    check_shards(LAYERS[name].of_codes(codes, scales, torch.bfloat16), out)


@pytest.mark.parametrize(
    ("device", "name"),
    [(CPU, "fp8-static"), (GFX950, "ct-channel-weight-only")],
    indirect=["device"],
)
def test_where_there_is_nothing_to_fuse(
    device: str, name: str, patterns: PatternMatcherPass, calls: Made
) -> None:
    """On a CPU HK's kernel rounds on the way; and some checkpoints do not ask for it."""
    calls.clear()
    _, matched = run(name, patterns)
    assert matched == [0]
    assert not calls
