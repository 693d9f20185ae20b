"""The library of each convention reads what is written: names, shapes, values, config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.format import infer_module_format
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils.helpers import calculate_qparams
from safetensors.torch import load_file

from hk_backend import reference
from hk_backend.ops.fp8_scales import fp8_scales
from hk_backend.ops.head_format import HEAD_KEY, KEPT
from hk_backend.ops.rotation import ROTATION
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.settings import Settings
from hk_backend.quantize.source import open_source
from hk_backend.quantize.values import dequantize
from hk_backend.reference.rotation import rotated
from tests.quantize.checkpoint import WEIGHTS, config_of, finished, tensors_of

COMPRESSED = [name for name, recipe in RECIPES.items() if recipe.quant_method != "quark"]
QUARK = [name for name, recipe in RECIPES.items() if recipe.quant_method == "quark"]
LAYER = "model.layers.1.mlp.down_proj"


def quantized(model: Path, out: Path, format: str, activations: str = "", head: str = KEPT) -> Path:
    """A folder that is rounded to nearest, as the libraries do it."""
    finished(model, out, Settings(format, activations, method="rtn", head=head))
    return out


def scheme_of(config: dict[str, Any]) -> QuantizationScheme:
    """The one group of a compressed-tensors config, as the library understands it."""
    parsed = QuantizationConfig.model_validate(config["quantization_config"])
    [scheme] = parsed.config_groups.values()
    assert isinstance(scheme, QuantizationScheme)
    assert parsed.quantization_status == "compressed"
    assert parsed.ignore == ["lm_head"]
    return scheme


def rounded_by_the_library(weight: torch.Tensor, args: QuantizationArgs) -> torch.Tensor:
    """The values that compressed-tensors itself quantises a weight to.

    But its scales of MXFP8 follow MXFP4's rule, which goes to the next power of two sooner: those
    are Quark's here, of the block's largest value rounded to the format's four bits.
    """
    if args.strategy == "channel":
        low, high = weight.aminmax(dim=1, keepdim=True)
    elif args.strategy == "block":
        assert args.block_structure == [128, 128]
        blocks = weight.unflatten(1, (-1, 128)).unflatten(0, (-1, 128))
        low, high = blocks.amin((1, 3)), blocks.amax((1, 3))
    else:
        assert args.group_size == 32
        low, high = weight.unflatten(1, (-1, 32)).aminmax(dim=2)
    scales, zero_points = calculate_qparams(low, high, args)
    if args.strategy == "group" and args.num_bits == 8:
        mantissa, exponent = torch.frexp(torch.maximum(high, -low))  # 0.5 <= mantissa < 1
        up = mantissa >= 1 - 2.0**-5
        scales = torch.ldexp(torch.ones_like(mantissa), exponent + up.int() - 1 - E4M3_EXPONENT)
    return fake_quantize(weight, scales, zero_points, args)


E4M3_EXPONENT = 8
"""Exponent of E4M3's largest number, 448."""


STRATEGIES = {
    # weights and activations, as engines read them: (strategy, group_size, block_structure)
    "fp8": (("channel", None, None), ("token", None, None)),
    "fp8_block": (("block", None, [128, 128]), ("group", 128, None)),
    "mxfp8": (("group", 32, None), ("group", 32, None)),
    "mxfp4": (("group", 32, None), ("group", 32, None)),
}


@pytest.mark.parametrize(
    ("format", "activations"), [*((each, "") for each in COMPRESSED), ("fp8", "none")]
)
def test_compressed_tensors(format: str, activations: str, model: Path, tmp_path: Path) -> None:
    """The library picks the format that the config names, and unpacks what it rounds to itself."""
    out = quantized(model, tmp_path / "out", format, activations)
    config, tensors, covers = config_of(out), tensors_of(out), STRATEGIES[format]
    scheme = scheme_of(config)
    assert (scheme.input_activations is None) == (activations == "none")
    for part, covered in zip((scheme.weights, scheme.input_activations), covers, strict=True):
        if part is not None:
            assert (str(part.strategy), part.group_size, part.block_structure) == covered
            assert part.dynamic is (part is scheme.input_activations)
    layout = config["quantization_config"]["format"]
    assert infer_module_format(torch.nn.Linear, scheme).value == layout == scheme.format
    compressor = BaseCompressor.get_value_from_registry(layout)
    stored = {
        name.removeprefix(f"{LAYER}."): tensor
        for name, tensor in tensors.items()
        if name.startswith(LAYER)
    }
    assert set(stored) <= set(compressor.compression_param_names(scheme))
    with torch.compiler.set_stance("force_eager"):  # or a helper of theirs compiles for seconds
        unpacked = compressor.decompress(stored, scheme)["weight"]
    original = load_file(model / WEIGHTS)[f"{LAYER}.weight"]
    assert torch.equal(unpacked.float(), rounded_by_the_library(original, scheme.weights))


@pytest.mark.parametrize(("format", "head"), [("fp8", KEPT), ("mxfp4", "mxfp8")])
def test_transformers_loads_it(format: str, head: str, model: Path, tmp_path: Path) -> None:
    """transformers and compressed-tensors, which know nothing of HK, find what the latter rounds to
    itself, and all else as it was, whatever HK is to serve the head in."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.quantization_config import CompressedTensorsConfig

    out, source = quantized(model, tmp_path / "out", format, head=head), open_source(model)
    assert (HEAD_KEY in config_of(out)["quantization_config"]) == (head != KEPT)
    with torch.compiler.set_stance("force_eager"):  # or a helper of theirs compiles for seconds
        theirs = AutoModelForCausalLM.from_pretrained(
            out, dtype=torch.float32, quantization_config=CompressedTensorsConfig(dequantize=True)
        )
    args = scheme_of(config_of(out)).weights
    for name in source.tensors:
        expected = source.read(name)
        if name.removesuffix(".weight") in source.layers:
            expected = rounded_by_the_library(expected, args)
        assert torch.equal(theirs.get_parameter(name).float(), expected), name
    assert (out / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("format", "activations", "of_inputs"),
    [
        *((each, "", each.replace("mxfp", "fp")) for each in QUARK),
        ("mxfp4", "mxfp6_e2m3", "fp6_e2m3"),
        ("mxfp4", "mxfp6_e3m2", "fp6_e3m2"),
        ("mxfp4", "mxfp8", "fp8_e4m3"),
    ],
)
def test_quark(format: str, activations: str, of_inputs: str, model: Path, tmp_path: Path) -> None:
    """Codes as a little-endian stream of bits, e8m0 scales, and the config of its exporter."""
    out = quantized(model, tmp_path / "out", format, activations)
    tensors, original = tensors_of(out), load_file(model / WEIGHTS)[f"{LAYER}.weight"]
    codes, scales = reference.quantize_mx(original, format, "even")
    assert torch.equal(tensors[f"{LAYER}.weight"], codes)
    assert torch.equal(tensors[f"{LAYER}.weight_scale"], scales)
    config = config_of(out)["quantization_config"]
    assert config["quant_method"] == "quark"
    assert config["exclude"] == ["lm_head"]
    weight = config["global_quant_config"]["weight"]
    assert weight["dtype"] == format.replace("mxfp", "fp")
    inputs = weight | {"dtype": of_inputs, "is_dynamic": True}
    assert config["global_quant_config"]["input_tensors"] == inputs
    if activations:  # weights alone have a convention of their own
        return
    weight_only = quantized(model, tmp_path / "weight-only", format, "none")
    config = config_of(weight_only)["quantization_config"]
    assert config["global_quant_config"]["input_tensors"] is None


@pytest.mark.parametrize(
    ("format", "method"), [("fp8_block", "rtn"), ("mxfp6_e2m3", "rtn"), ("mxfp4", "rotated")]
)
def test_error_of_a_layer(format: str, method: str, model: Path, tmp_path: Path) -> None:
    """The relative Frobenius error is that of the written codes, by the reference, in float64."""
    job = finished(model, tmp_path / "out", Settings(format, method=method))
    errors = job.layer_errors()
    assert {found.layer for found in errors} == set(job.source.layers)
    assert errors == sorted(errors, key=lambda found: -found.error)
    tensors, original = tensors_of(job.out.directory), load_file(model / WEIGHTS)
    for found in errors:
        codes, scales = (tensors[f"{found.layer}.{part.name}"] for part in job.recipe.stored(1, 32))
        values = reference.dequantize(codes, job.recipe.format, scales)
        if method == "rotated":
            values = rotated(values, ROTATION)
            values = rotated(values.T, ROTATION).T if "v_proj" in found.layer else values
        weight = original[f"{found.layer}.weight"].double()
        assert found.error == pytest.approx(float((values - weight).norm() / weight.norm()), 1e-5)
    report = json.loads((job.out.directory / "hk_quantize.json").read_text())
    assert report["finished"]
    assert report["bytes"] == job.plan.nbytes


@pytest.mark.parametrize("format", ["mxfp4", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp8"])
def test_every_code_has_its_value(format: str) -> None:
    """`dequantize` is the reference for every byte, at every place of a group, and every scale."""
    bits = {"mxfp4": 4, "mxfp8": 8}.get(format, 6)
    codes = torch.arange(64 * 32 * bits // 8).mul(89).to(torch.uint8).view(64, -1)
    scales = (torch.arange(64) * 4).to(torch.uint8)[:, None]
    if bits == 8:
        codes = codes.view(torch.float8_e4m3fn)
    found, expected = dequantize(codes, format, scales), reference.dequantize(codes, format, scales)
    assert torch.equal(found.nan_to_num(), expected.float().nan_to_num())


def test_fp8_scales_of_tiny_channels() -> None:
    """A channel far below the operator's smallest dynamic scale keeps FP8's precision."""
    weight = torch.randn(130, 256) * torch.logspace(-8, 2, 130)[:, None]
    weight[7] = 0
    for name in ("fp8", "fp8_block"):
        recipe = RECIPES[name]
        codes, scales = recipe.quantize(weight)
        assert torch.equal(scales, fp8_scales(weight, recipe.granularity, 448.0))
        values = recipe.dequantize(codes, scales)
        assert torch.equal(values[7], weight[7])
        if name == "fp8":  # 3 mantissa bits; below 2^-6 of 448ths of the largest: denormal codes
            error = (values - weight).abs()
            bound = torch.maximum(weight.abs() / 16, scales * 2.0**-10)
            assert bool((error <= bound * (1 + 1e-6)).all())
