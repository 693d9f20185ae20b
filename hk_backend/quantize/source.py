"""Opens and checks the checkpoint to quantise, and reads its tensors one at a time."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.tensor import StoredTensor

PROJECTIONS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
EMBEDDING, HEAD = "model.embed_tokens", "lm_head"
LAYER_NORMS, LAST_NORM = ("input_layernorm", "post_attention_layernorm"), "model.norm"
KNOWN = ("llama", "mistral", "qwen2", "qwen3")
"""Values of `model_type` whose rotations can be folded into neighbouring weights.

These models have exactly these norms, each before its readers and with plain gains. Between v_proj
and o_proj they have attention only (OLMo clips and BitNet normalises there).
"""
ATTENTION, MLP = PROJECTIONS[:4], PROJECTIONS[4:]
MERGED = (ATTENTION[:3], MLP[:2])
"""Groups of projections that engines run as one layer."""
TIED = "tie_word_embeddings"
"""Key of config.json: whether the LM head is the embedding's table."""
ROWS = 4096
"""Number of rows of a table that are compared at once."""
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
LAYER_TENSOR = re.compile(r"model\.layers\.(\d+)\.(.+)\.weight")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
WEIGHT_FILES = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.index.json", "*.h5")


@dataclass(frozen=True)
class SourceTensor(StoredTensor):
    """A tensor of the checkpoint, in its `file`."""

    file: str


@dataclass(frozen=True)
class Source:
    """An opened checkpoint. `tensors`: by name, in the order of its files. `config`: config.json.

    `fingerprint` changes when the checkpoint does. `has_other_head`: config.json ties the LM head
    to the embedding, but the checkpoint has a head with other values; `config` then says untied.
    """

    directory: Path
    config: dict[str, Any]
    tensors: dict[str, SourceTensor]
    fingerprint: str
    has_other_head: bool

    @property
    def layers(self) -> list[str]:
        """The names of the Linear layers that can be quantised, in the model's order."""
        count = self.config["num_hidden_layers"]
        return [f"model.layers.{i}.{name}" for i in range(count) for name in PROJECTIONS]

    @property
    def vocabulary(self) -> int:
        """Number of rows of the embedding."""
        return self.tensors[f"{EMBEDDING}.weight"].shape[0]

    @property
    def other_matrices(self) -> list[str]:
        """Names of other modules that may be Linear, such as a classifier in place of a head.

        No format covers them.
        """
        around = {f"{name}.weight" for name in (*self.layers, EMBEDDING, HEAD)}
        return [
            name.removesuffix(".weight")
            for name, tensor in self.tensors.items()
            if name.endswith(".weight") and len(tensor.shape) == 2 and name not in around
        ]

    @property
    def has_head(self) -> bool:
        """Whether the model predicts tokens; models that score or embed texts have no LM head."""
        return f"{HEAD}.weight" in self.tensors or is_causal(self.config)

    @property
    def head_table(self) -> str:
        """Name of the LM head's weight, which is the embedding's if the head is tied."""
        own = f"{HEAD}.weight"
        tied = self.config.get(TIED) or own not in self.tensors
        return f"{EMBEDDING}.weight" if tied else own

    def read(self, name: str) -> torch.Tensor:
        """Read a tensor. Raises QuantizeError if its file was damaged since it was opened."""
        with self._opened(name) as file:
            return file.get_tensor(name)  # type: ignore[no-any-return]

    def pieces(self, name: str) -> Iterator[torch.Tensor]:
        """Read a tensor `ROWS` rows at a time. Raises the same errors as `read`."""
        with self._opened(name) as file:
            rows = file.get_slice(name)
            for first in range(0, self.tensors[name].shape[0], ROWS):
                yield rows[first : first + ROWS]

    @contextmanager
    def _opened(self, name: str) -> Iterator[Any]:
        path = self.directory / self.tensors[name].file
        try:
            with safe_open(path, framework="pt") as file:
                yield file
        except (SafetensorError, OSError) as error:
            raise QuantizeError(f"{path}: cannot read {name}: {error}") from None

    def finite(self, name: str) -> torch.Tensor:
        """Read a tensor. Raises QuantizeError also if it contains NaN or infinity."""
        tensor = self.read(name)
        if not tensor.isfinite().all():
            raise QuantizeError(f"{self.directory}: {name} contains NaN or infinity")
        return tensor

    def other_files(self) -> Iterator[Path]:
        """All files but weights and config.json: tokenizer, chat template, licence, ..."""
        for path in sorted(self.directory.iterdir()):
            hidden = path.name.startswith(".") or path.name == "config.json"
            if path.is_file() and not hidden and not any(map(path.match, WEIGHT_FILES)):
                yield path


def open_source(directory: Path) -> Source:
    """Inspect a checkpoint without loading it.

    Raises:
        QuantizeError: the folder has no checkpoint, or one that is quantised already, is not in
            safetensors, or is not built like a Llama.
    """
    config = read_config(directory)
    tensors: dict[str, SourceTensor] = {}
    state = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for path in weight_files(directory):
        tensors |= read_header(path, str(path.relative_to(directory)))
        stat = path.stat()
        state.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    source = Source(directory, config, tensors, state.hexdigest(), has_other_head=False)
    check_llama(source)
    tables = f"{HEAD}.weight", f"{EMBEDDING}.weight"
    if config.get(TIED) and tables[0] in tensors and not _are_equal(source, *tables):
        # with the old config, vLLM and transformers serve this head, SGLang the embedding
        source = replace(source, config=config | {TIED: False}, has_other_head=True)
    return source


def _are_equal(source: Source, *names: str) -> bool:
    """Whether two tensors have the same shape and values, read a few rows at a time.

    Raises:
        QuantizeError: a file has been damaged since it was opened.
    """
    one, other = (source.tensors[name] for name in names)
    if one.shape != other.shape:
        return False
    pairs = zip(*(source.pieces(name) for name in names), strict=True)
    return all(torch.equal(piece.float(), others.float()) for piece, others in pairs)


def read_config(directory: Path) -> dict[str, Any]:
    if directory.is_file():
        raise QuantizeError(f"{directory} is a file; expected a folder with config.json")
    if not directory.exists():
        hub = ""
        if HUB_ID.fullmatch(str(directory)):
            download = f"hf download {directory} --local-dir {directory.name}"
            hub = f"; a model of that name on the Hugging Face hub is downloaded by: {download}"
        raise QuantizeError(f"{directory}: no such folder{hub}")
    path = directory / "config.json"
    if not path.is_file():
        ggufs = list(directory.glob("*.gguf"))
        if ggufs:
            raise QuantizeError(
                f"{ggufs[0]} is GGUF, quantised already; convert the original checkpoint instead"
            )
        raise QuantizeError(f"{directory} is not a model: it has no config.json")
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise QuantizeError(f"{path} is not JSON: {error}") from None
    quantized = config.get("quantization_config") or config.get("compression_config")
    if quantized:
        method = quantized.get("quant_method", "an unnamed method")
        raise QuantizeError(f"{directory} is quantised already ({method}); use the original")
    if (directory / "hf_quant_config.json").exists():
        raise QuantizeError(f"{directory} is quantised already (modelopt); use the original")
    return config


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files; if there is an index, those that it names."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise QuantizeError(
                f"{index} is not an index of safetensors files: {error!r}"
            ) from None
        missing = [name for name in names if not (directory / name).is_file()]
        if missing:
            raise QuantizeError(f"{index} names {missing[0]}, which is not there; download it")
        return [directory / name for name in names]
    single = directory / "model.safetensors"
    if single.is_file():
        return [single]
    if any(directory.glob("*.safetensors")):
        raise QuantizeError(f"{directory} has safetensors files but no {index.name}")
    others = [path for pattern in WEIGHT_FILES for path in directory.glob(pattern)]
    if others:
        raise QuantizeError(f"{others[0]} is not safetensors; save the model as safetensors first")
    raise QuantizeError(f"{directory} has no weights: no model.safetensors and no {index.name}")


def read_header(path: Path, file: str) -> dict[str, SourceTensor]:
    """Names, shapes and dtypes of a file's tensors; `file`: its path in the checkpoint."""
    tensors = {}
    try:
        with safe_open(path, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 (not a dict)
                part = opened.get_slice(name)
                dtype = DTYPES.get(part.get_dtype())
                if dtype is None:
                    raise QuantizeError(
                        f"{path}: {name} is {part.get_dtype()}; BF16, F16 and F32 can be quantised"
                    )
                tensors[name] = SourceTensor(name, tuple(part.get_shape()), dtype, file)
    except (SafetensorError, OSError) as error:
        raise QuantizeError(f"{path} cannot be read: {error}; download it again") from None
    return tensors


def check_llama(source: Source) -> None:
    """Check that the model is built like a Llama and complete.

    Every decoder layer must have the seven projections of a Llama and no other matrix.
    """
    directory, tensors = source.directory, source.tensors
    count = source.config.get("num_hidden_layers")
    if not isinstance(count, int) or count < 1:
        raise QuantizeError(f"{directory}: config.json has no num_hidden_layers")
    for layer in source.layers:
        weight = tensors.get(f"{layer}.weight")
        if weight is None or len(weight.shape) != 2:
            found = "is missing" if weight is None else f"has the shape {list(weight.shape)}"
            raise QuantizeError(
                f"{directory} is not built like a Llama: {layer}.weight {found} (Llama, Mistral "
                "and Qwen 2 and 3 without experts are)"
            )
    for tensor in tensors.values():
        match = LAYER_TENSOR.fullmatch(tensor.name)
        if match and len(tensor.shape) > 1 and match[2] not in PROJECTIONS:
            raise QuantizeError(
                f"{directory} is not built like a Llama: it has the matrix {tensor.name}"
            )
    for name in _around_projections(source):
        if name not in tensors:
            tied = f"{HEAD}.weight"  # safetensors keeps the first name of a shared tensor
            of_tied = name == f"{EMBEDDING}.weight" and tied in tensors
            hint = f"; if it is tied to {tied}, save that under its name" if of_tied else ""
            raise QuantizeError(f"{directory} is incomplete: {name} is missing{hint}")


def _around_projections(source: Source) -> Iterator[str]:
    """Names of all other tensors of a model of `KNOWN`; of another model, its embedding's."""
    config = source.config
    yield f"{EMBEDDING}.weight"
    if config.get("model_type") not in KNOWN:
        return
    for i in range(config["num_hidden_layers"]):
        yield from (f"model.layers.{i}.{name}" for name in _around_a_layer(config))
    yield f"{LAST_NORM}.weight"
    if is_causal(config) and not config.get(TIED):
        yield f"{HEAD}.weight"


def is_causal(config: dict[str, Any]) -> bool:
    """Whether all architectures that a `config` names predict tokens."""
    return all(name.endswith("ForCausalLM") for name in config.get("architectures") or ())


def _around_a_layer(config: dict[str, Any]) -> Iterator[str]:
    """Names of a decoder layer's norms and biases in transformers' models of `KNOWN`."""
    kind = config["model_type"]
    yield from (f"{norm}.weight" for norm in LAYER_NORMS)
    if kind == "qwen3":
        yield from ("self_attn.q_norm.weight", "self_attn.k_norm.weight")
    if kind == "qwen2":
        yield from (f"{name}.bias" for name in MERGED[0])
    if kind in ("llama", "qwen3") and config.get("attention_bias"):
        yield from (f"{name}.bias" for name in ATTENTION)
    if kind == "llama" and config.get("mlp_bias"):
        yield from (f"{name}.bias" for name in MLP)
