"""HK's method for the layers of a quantised checkpoint.

A layer gets the checkpoint's own tensors, every shard with its own scale. Once all are loaded, they
are packed and released. SGLang's method computes the layers that HK does not serve.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.layers.parameter import (
    BlockQuantScaleParameter,
    ChannelQuantScaleParameter,
    GroupQuantScaleParameter,
    ModelWeightParameter,
    PerTensorScaleParameter,
)
from sglang.srt.layers.quantization.base_config import LinearMethodBase

from hk_backend.engine.linear.checkpoint_tensors import mark_unset, verdict_on_blocks
from hk_backend.engine.linear.contest import Multiply, stand_in
from hk_backend.engine.linear.options import no_layer
from hk_backend.engine.linear.packed_layer import pack_layer
from hk_backend.engine.linear.rotated import only_hk, verdict_on_shards
from hk_backend.engine.linear.route import apply
from hk_backend.engine.linear.shards import name_of
from hk_backend.ops import LinearRequest
from hk_backend.terms.verdict import Verdict, refused
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK, MX_BLOCK
from hk_sglang.linear.arrivals import give_memory, releasing, whole_tensors
from hk_sglang.linear.contest import CONTESTS, with_kernel
from hk_sglang.linear.layer import READ, device_type, read_by_models, verdict_on
from hk_sglang.linear.schemes import Scheme
from hk_sglang.linear.stock import Stock, create, fill, left_to_sglang, product_of


class HKMethod(LinearMethodBase):  # type: ignore[misc]
    """The base of HK's methods."""

    def __init__(self) -> None:
        # SGLang's loader asks a method's configuration for the size of blocks
        self.quant_config = self
        self.weight_block_size = [FP8_BLOCK, FP8_BLOCK]

    def apply(self, layer: Any, x: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Computes the layer.

        Args:
            x: rows; or FP8 codes that a model's fused kernel has made of them. SGLang passes codes
                with their scales, and perhaps the dtype of the rows.
        """
        if not isinstance(x, tuple):
            return apply(layer, x, bias)
        codes, scales, *rest = x
        dtype = rest[0] if rest and isinstance(rest[0], torch.dtype) else layer.params_dtype
        return apply(layer, codes, bias, dtype, scales)


class HKLinearMethod(HKMethod):
    """The method for layers of a checkpoint with quantised weights.

    Args:
        stock: SGLang's own method, for a layer that HK does not serve.
        name: name of HK's method, if there is no `stock`.
    """

    def __init__(self, scheme: Scheme, stock: Stock | None = None, name: str = "") -> None:
        super().__init__()
        self.scheme, self.stock, self.name = scheme, stock, name

    def create_weights(
        self,
        layer: Any,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra: Any,
    ) -> None:
        """Creates the parameters of a layer, for HK or SGLang.

        Raises:
            ValueError, RotationError: HK does not serve the layer and nothing else can compute it.
        """
        sizes = {
            "input_size_per_partition": input_size_per_partition,
            "output_partition_sizes": output_partition_sizes,
            "input_size": input_size,
            "output_size": output_size,
            "params_dtype": params_dtype,
        }
        widths, k = output_partition_sizes, input_size_per_partition
        n = sum(widths)
        request = self._request(n, k, params_dtype)
        verdict = refused(READ) if read_by_models(layer) else verdict_on(request)
        if verdict and self.scheme.scale_kind == "block":
            verdict = _blocks_verdict(widths, output_size // n, k, input_size // k)
        rotation = self.scheme.rotation
        if rotation:
            verdict = verdict_on_shards(k, rotation, input_size // k) and verdict
        if not verdict and self.stock is None:
            raise no_layer(self.name, name_of(layer), verdict.why)
        if not verdict and rotation:
            raise only_hk(name_of(layer), rotation, verdict.why)
        if verdict and self.stock is not None and not rotation:
            sides = functools.partial(self._sides, layer, self.stock, sizes | extra)
            theirs = f"{self.stock.name}{', static' if self.scheme.static else ''}"
            verdict = CONTESTS.decide(with_kernel(theirs), request, sides).verdict
        if verdict:
            layer.logical_widths = widths
            self._register(layer, n, k, extra["weight_loader"])
            return
        assert self.stock is not None
        method = left_to_sglang(layer, name_of(layer), verdict.why, self.stock.make)
        create(layer, method, sizes | extra)

    def _sides(
        self, layer: Any, stock: Stock, arguments: dict[str, Any]
    ) -> tuple[torch.nn.Module, Multiply]:
        """Both ways to compute `layer`, with random values of its sizes.

        Raises:
            NoContest: SGLang cannot compute it.
        """
        widths: list[int] = arguments["output_partition_sizes"]
        k: int = arguments["input_size_per_partition"]
        ours = stand_in(layer)
        ours.logical_widths = widths
        self._register(ours, sum(widths), k, arguments["weight_loader"])
        fill(ours)
        self._pack(
            ours, ours.get_parameter(self.scheme.weight), ours.get_parameter(self.scheme.scales[0])
        )
        return ours, product_of(stand_in(layer), stock, arguments)

    def _request(self, n: int, k: int, dtype: torch.dtype) -> LinearRequest:
        scheme = self.scheme
        facts = device_type(), dtype, scheme.format, n, k, scheme.activations, scheme.scale_kind
        return LinearRequest(*facts, rotation=scheme.rotation)

    def _register(self, layer: Any, n: int, k: int, loader: Any) -> None:
        scheme, format = self.scheme, FORMATS[self.scheme.format]
        codes = torch.empty(n, format.row_codes(k), dtype=format.dtype)
        rows = whole_tensors(layer, loader)
        weight = ModelWeightParameter(data=codes, input_dim=1, output_dim=0, weight_loader=rows)
        layer.register_parameter(scheme.weight, weight)
        shards = len(layer.logical_widths)
        make = _scale_maker(scheme, layer, n, k, loader)
        for name in scheme.scales:  # the same memory under each name that a model may use
            layer.register_parameter(name, make())
        if scheme.static:
            inputs = torch.empty(shards, dtype=torch.float32)
            layer.register_parameter(
                "input_scale", PerTensorScaleParameter(data=inputs, weight_loader=loader)
            )
        mark_unset(layer)

    def process_weights_after_loading(self, layer: Any) -> None:
        scheme = self.scheme
        tensors = scheme.weight, *scheme.scales, "input_scale"
        held = [layer._parameters[name] for name in tensors if name in layer._parameters]
        if not any(parameter.numel() for parameter in held):
            return  # packed by an earlier call, and nothing was loaded since
        with releasing(layer, *tensors, shared=scheme.scales):
            for parameter in held:
                give_memory(parameter)
            self._pack(layer, held[0].data, held[1].data)

    def _pack(self, layer: Any, weight: torch.Tensor, scales: torch.Tensor) -> None:
        scheme = self.scheme
        pack_layer(
            layer,
            weight,
            scheme.format,
            scales,
            activations=scheme.activations,
            static=scheme.static,
            rotation=scheme.rotation,
            names={"weight": scheme.weight, "scales": scheme.scales[0]},
        )


def _blocks_verdict(widths: list[int], n_ranks: int, k: int, k_ranks: int) -> Verdict:
    """Whether the 128x128 blocks of a rank's part match its scales."""
    if k_ranks > 1 and k % FP8_BLOCK:
        return refused(f"{k} input features on a rank do not end on a block of {FP8_BLOCK}")
    return verdict_on_blocks(widths, n_ranks)


def _scale_maker(
    scheme: Scheme, layer: Any, n: int, k: int, loader: Any
) -> Callable[[], torch.nn.Parameter]:
    """Returns a maker of parameters, with shared memory, for the scales of a weight `[n, k]`."""
    if scheme.scale_kind == "tensor":
        data = torch.empty(len(layer.logical_widths), dtype=torch.float32)
        return lambda: PerTensorScaleParameter(data=data, weight_loader=loader)
    rows = whole_tensors(layer, loader, FP8_BLOCK if scheme.scale_kind == "block" else 1)
    if scheme.scale_kind == "channel":
        data = torch.empty((n, 1) if scheme.column else (n,), dtype=torch.float32)
        return lambda: ChannelQuantScaleParameter(data=data, output_dim=0, weight_loader=rows)
    if scheme.scale_kind == "block":
        blocks = -(-n // FP8_BLOCK), -(-k // FP8_BLOCK)
        data, kind = torch.empty(blocks, dtype=torch.float32), BlockQuantScaleParameter
    else:
        data, kind = torch.empty(n, k // MX_BLOCK, dtype=torch.uint8), GroupQuantScaleParameter
    return lambda: kind(data=data, input_dim=1, output_dim=0, weight_loader=rows)
