"""compressed-tensors checkpoints, by the library itself: its configs, scales and packing."""

from __future__ import annotations

from typing import Any

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.format import infer_module_format
from compressed_tensors.quantization import (
    QuantizationConfig,
    QuantizationScheme,
    QuantizationStatus,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.utils import calculate_qparams
from compressed_tensors.transform import (
    TransformArgs,
    TransformConfig,
    TransformFactory,
    TransformScheme,
)

from tests.integration.shared.checkpoints.scheme import Layer


def preset(name: str, **changed: Any) -> QuantizationScheme:
    """One of the library's presets; `changed`: entries about weights or activations, or None."""
    scheme = preset_name_to_scheme(name, ["Linear"])
    return QuantizationScheme.model_validate(scheme.model_dump() | changed)


def config(scheme: QuantizationScheme) -> dict[str, Any]:
    """The `quantization_config` that the library writes into config.json."""
    layout = infer_module_format(torch.nn.Linear, scheme)
    whole = QuantizationConfig(
        config_groups={"group_0": scheme.model_copy(update={"format": layout})},
        format=layout.value,
        quantization_status=QuantizationStatus.COMPRESSED,
        ignore=["lm_head"],
    )
    return whole.model_dump(mode="json")


def layer(scheme: QuantizationScheme, weight: torch.Tensor) -> Layer:
    """Quantise a weight by the library, and ask the library for the values of the result."""
    compressor = BaseCompressor.get_value_from_registry(
        infer_module_format(torch.nn.Linear, scheme).value
    )
    low, high = _range(scheme, weight)
    scale, _ = calculate_qparams(low, high, scheme.weights)
    with torch.compiler.set_stance("force_eager"):  # else a helper compiles for seconds
        stored = compressor.compress({"weight": weight, "weight_scale": scale}, scheme)
        values = compressor.decompress(dict(stored), scheme)["weight"]
    return Layer({name: part.contiguous() for name, part in stored.items()}, values)


def transforms(**changed: Any) -> dict[str, Any]:
    """The `transform_config` of llm-compressor's QuIP: of inputs alone, and of no head."""
    sides = {"input": False, "weight_input": True}
    entries = {"type": "hadamard", "head_dim": 64} | changed
    scheme = TransformScheme(
        apply=[
            TransformArgs(targets=["Linear"], location=side, inverse=inverse, ignore=["lm_head"])
            for side, inverse in sides.items()
        ],
        **entries,
    )
    return TransformConfig(config_groups={"v": scheme}).model_dump(mode="json")


def turned(transforms: dict[str, Any], weight: torch.Tensor) -> torch.Tensor:
    """A weight after the library's transforms of it."""
    return transformed(transforms, weight).weight.data


def matrices(transforms: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of transforms that the library stores beside each weight."""
    layer = transformed(transforms, torch.eye(512))
    return {name: each.data for name, each in layer.named_parameters() if name != "weight"}


def transformed(transforms: dict[str, Any], weight: torch.Tensor) -> Any:
    """A linear layer whose weight the library has transformed, and which transforms its input."""
    n, k = weight.shape
    layer = torch.nn.Linear(k, n, bias=False, dtype=weight.dtype)
    layer.weight.data = weight.clone()
    model = torch.nn.ModuleDict({"layer": layer})
    for name, scheme in TransformConfig.model_validate(transforms).config_groups.items():
        factory = TransformFactory.from_scheme(scheme, name=name, seed=0)
        factory.apply_to_model(model, use_tqdm=False)
    return layer


def _range(scheme: QuantizationScheme, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest and largest value of each group that shares a scale."""
    args = scheme.weights
    assert args is not None
    n, k = weight.shape
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    if args.strategy == "tensor":
        groups, axes, shape = weight, (0, 1), (1,)
    elif args.strategy == "channel":
        groups, axes, shape = weight, (1,), (n, 1)
    elif args.strategy == "group":
        groups, axes, shape = weight.reshape(n, -1, args.group_size), (2,), (n, -1)
    else:
        rows, columns = args.block_structure
        groups = weight.reshape(n // rows, rows, k // columns, columns)
        axes, shape = (1, 3), (n // rows, k // columns)
    return groups.amin(axes).reshape(shape), groups.amax(axes).reshape(shape)
