"""Converts a Llama checkpoint to a GGUF file, tensor by tensor.

python -m bench_serving.llamacpp.convert CHECKPOINT FILE.gguf --format q4_0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gguf
import numpy as np
import torch
import typer
from gguf import GGMLQuantizationType, GGUFWriter

from bench_serving.llamacpp.blocks import Array, encode
from bench_serving.llamacpp.errors import ConvertError
from bench_serving.llamacpp.formats import FORMATS, UNQUANTIZED, GgufFormat
from bench_serving.llamacpp.tokenizer import add_tokenizer
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.source import Source, SourceTensor, open_source, read_config

EXPECTED: dict[str, object] = {
    "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "pretraining_tp": 1
}  # fmt: skip
"""Values that these keys of config.json must have, where they are present."""
NEEDED = (
    "vocab_size", "max_position_embeddings", "hidden_size", "intermediate_size", "rms_norm_eps",
    "num_attention_heads",
)  # fmt: skip
"""Numbers that config.json must have; open_source checks num_hidden_layers."""
SCALING = ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "factor")
"""Numbers that config.json must have for RoPE, if its type is llama3."""
EMBEDDING, HEAD, LAST_NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
ROPE_FACTORS = "rope_freqs.weight"


@dataclass(frozen=True)
class Entry:
    """A tensor of the GGUF file: its name and type there, and its tensor in the checkpoint."""

    name: str
    kind: GGMLQuantizationType
    source: SourceTensor


def write_gguf(checkpoint: Path, file: Path, format: str) -> None:
    """Convert `checkpoint` to `file`; `format` is a key of `FORMATS`.

    The file appears when it is complete. Memory holds one tensor at a time, before and after
    conversion.

    Raises:
        ConvertError: the checkpoint is not a plain Llama, or has a setting that llama.cpp would
            ignore.
        OSError: the file cannot be written.
    """
    part = file.with_name(f"{file.name}.part")
    try:
        config = read_config(checkpoint)
        factors = _check(checkpoint, config)  # first, since another model also lacks tensors
        source = open_source(checkpoint)
        entries = list(_entries(source, FORMATS[format]))
        writer = GGUFWriter(part, "llama")
        writer.add_name(checkpoint.name)
        _add_settings(writer, config, FORMATS[format])
        add_tokenizer(writer, checkpoint, config["vocab_size"])
        if factors is not None:
            writer.add_tensor_info(ROPE_FACTORS, factors.shape, factors.dtype, factors.nbytes)
        for entry in entries:
            _announce(writer, entry)
        file.parent.mkdir(parents=True, exist_ok=True)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        if factors is not None:
            writer.write_tensor_data(factors)
        for entry in entries:
            writer.write_tensor_data(_data(source, entry))
        writer.close()
        part.replace(file)
    except QuantizeError as error:
        raise ConvertError(str(error)) from None
    finally:
        part.unlink(missing_ok=True)


def _check(directory: Path, config: dict[str, Any]) -> Array | None:
    """Check that llama.cpp can compute this model; returns its RoPE's factors, if it has any."""
    if config.get("model_type") != "llama":
        found = config.get("model_type")
        raise ConvertError(f"{directory}: model_type is {found!r}; only 'llama' is converted")
    for name, value in EXPECTED.items():
        if config.get(name, value) != value:
            raise ConvertError(f"{directory}: {name} is {config[name]!r}; expected {value!r}")
    _check_numbers(directory, config, NEEDED)
    return _rope_factors(directory, config)


def _check_numbers(directory: Path, config: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if not isinstance(config.get(name), int | float):
            found = config.get(name)
            raise ConvertError(f"{directory}: config.json: {name} is {found!r}; expected a number")


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """Settings of RoPE, which transformers 5 keeps in one entry and older versions in two."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return {"rope_theta": config.get("rope_theta", 10000.0), **found}


def _rope_factors(directory: Path, config: dict[str, Any]) -> Array | None:
    """Divisor of each RoPE frequency, `[head_dim / 2]`, float32; None: nothing is scaled."""
    rope = _rope(config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ConvertError(f"{directory}: rope_type is {kind!r}; default and llama3 are converted")
    _check_numbers(directory, rope, SCALING)
    half = _head_dim(config) // 2
    turns = rope["original_max_position_embeddings"] / (
        2 * math.pi * rope["rope_theta"] ** (np.arange(half) / half)
    )
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    kept = ((turns - low) / (high - low)).clip(0, 1)
    return (1 / (kept + (1 - kept) / rope["factor"])).astype(np.float32)  # type: ignore[no-any-return]


def _head_dim(config: dict[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _kv_heads(config: dict[str, Any]) -> int:
    return int(config.get("num_key_value_heads") or config["num_attention_heads"])


def _add_settings(writer: GGUFWriter, config: dict[str, Any], format: GgufFormat) -> None:
    writer.add_file_type(gguf.LlamaFileType[format.file_type])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(_kv_heads(config))
    writer.add_key_length(_head_dim(config))
    writer.add_value_length(_head_dim(config))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(_head_dim(config))
    writer.add_rope_freq_base(_rope(config)["rope_theta"])


def _entries(source: Source, format: GgufFormat) -> Iterator[Entry]:
    """Yields the file's tensors in the order of the checkpoint; a tied head is left out."""
    config, tied = source.config, bool(source.config.get("tie_word_embeddings"))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    needed = {EMBEDDING, LAST_NORM, *([] if tied else [HEAD])}
    for layer in range(config["num_hidden_layers"]):
        norms = ("input_layernorm", "post_attention_layernorm")
        needed |= {f"model.layers.{layer}.{norm}.weight" for norm in norms}
    missing = sorted(needed - source.tensors.keys())
    if missing:
        raise ConvertError(f"{source.directory}: {missing[0]} is missing")
    for tensor in source.tensors.values():
        if tensor.name.endswith("rotary_emb.inv_freq") or (tied and tensor.name == HEAD):
            continue
        name = names.get_name(tensor.name, try_suffixes=(".weight",))
        if name is None:
            raise ConvertError(f"{source.directory}: llama.cpp's Llama has no {tensor.name}")
        if tensor.name == EMBEDDING and tensor.shape[0] != config["vocab_size"]:
            rows = f"{tensor.name} has {tensor.shape[0]} rows"
            raise ConvertError(f"{source.directory}: {rows}, vocab_size is {config['vocab_size']}")
        is_head = tensor.name == (EMBEDDING if tied else HEAD)
        kind = "F32"
        if len(tensor.shape) == 2:
            kind = format.head_of(tensor.shape[1]) if is_head else format.weight
        yield Entry(name, GGMLQuantizationType[kind], tensor)


def _announce(writer: GGUFWriter, entry: Entry) -> None:
    """Declare a tensor with the shape and type that `_data` will return."""
    kind, shape = entry.kind, entry.source.shape
    if kind == GGMLQuantizationType.F32:
        writer.add_tensor_info(entry.name, shape, np.dtype(np.float32), 4 * math.prod(shape))
        return
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        raise ConvertError(
            f"{entry.source.name} has {shape[-1]} columns; {kind.name} needs a multiple of {block}"
        )
    stored = (shape[0], shape[1] // block * size)
    writer.add_tensor_info(entry.name, stored, np.dtype(np.uint8), math.prod(stored), kind)


def _data(source: Source, entry: Entry) -> Array:
    tensor = source.finite(entry.source.name)
    if entry.kind == GGMLQuantizationType.F32:
        floats: Array = tensor.float().numpy()
        return floats
    config = source.config
    for name, heads in (("q_proj", config["num_attention_heads"]), ("k_proj", _kv_heads(config))):
        if entry.source.name.endswith(f"{name}.weight"):
            tensor = _paired(tensor, heads)
    return encode(tensor, entry.kind)


def _paired(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """The rows of `weight` `[heads x d, k]` in llama.cpp's order.

    RoPE rotates channels 2i and 2i + 1 in llama.cpp, but i and d/2 + i in transformers.
    """
    halves: torch.Tensor = weight.unflatten(0, (heads, 2, -1))
    return halves.transpose(1, 2).reshape(weight.shape)


def _main(
    checkpoint: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    file: Annotated[Path, typer.Argument(dir_okay=False, help="The GGUF file to write.")],
    format: Annotated[str, typer.Option(help=f"One of {', '.join(FORMATS)}.")] = UNQUANTIZED,
) -> None:
    """Convert a Llama checkpoint to GGUF."""
    if format not in FORMATS:
        raise typer.BadParameter(f"--format {format}: it is one of {', '.join(FORMATS)}")
    try:
        write_gguf(checkpoint, file, format)
    except (ConvertError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(_main)
