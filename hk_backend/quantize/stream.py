"""Runs calibration tokens through a checkpoint's decoder layers, one layer in memory at a time."""

from __future__ import annotations

import contextlib
import copy
from functools import partial
from typing import Any

import torch

from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.source import EMBEDDING, Source
from hk_backend.quantize.text import import_transformers
from hk_backend.quantize.together import Together


class Stream:
    """The decoder layers of `source`, run one by one on the token ids `windows` `[count, length]`.

    `hidden`: inputs of the next layer, float32 `[count, length, hidden size]`. `together`: the
    threads that run them, each a part of the windows.
    """

    def __init__(self, source: Source, windows: torch.Tensor) -> None:
        self._source = source
        self._decoder = _skeleton(source)
        self._embedded: list[torch.Tensor] = []
        self._contexts: list[dict[str, Any]] = [{} for _ in self._decoder.layers]
        self._enter(windows)
        self.hidden = torch.cat(self._embedded)
        self.together = Together(len(windows))

    def load(self, index: int) -> torch.nn.Module:
        """Decoder layer `index` with its weights, float32."""
        layer: torch.nn.Module = copy.deepcopy(self._decoder.layers[index])
        prefix = f"model.layers.{index}."
        weights = {name: self._source.finite(prefix + name).float() for name in layer.state_dict()}
        layer.load_state_dict(weights, assign=True)
        return layer.requires_grad_(False)

    def forward(self, index: int, layer: torch.nn.Module) -> torch.Tensor:
        """The outputs of `layer`, which is decoder layer `index`, for all windows."""

        def outputs(hidden: torch.Tensor) -> torch.Tensor:
            with torch.inference_mode():
                result = layer(hidden, **self._contexts[index])
            output: torch.Tensor = result[0] if isinstance(result, tuple) else result
            return output

        parts = self.hidden.tensor_split(self.together.count)
        return torch.cat(self.together.run(outputs, parts))

    def _enter(self, windows: torch.Tensor) -> None:
        """Run the model up to its last layer, with layers that change nothing.

        This keeps the other arguments of each layer: masks and rotary embeddings, which may differ.
        """
        decoder = copy.deepcopy(self._decoder)
        table = self._source.finite(f"{EMBEDDING}.weight").float()
        decoder.embed_tokens.load_state_dict({"weight": table}, assign=True)
        for index, layer in enumerate(decoder.layers):
            layer.forward = partial(self._reached, index)
        for window in windows:
            with torch.inference_mode(), contextlib.suppress(_LastLayer):
                decoder(window[None], use_cache=False)

    def _reached(self, index: int, hidden: torch.Tensor, **context: Any) -> torch.Tensor:
        """Stand in for decoder layer `index`: record its arguments, return its input."""
        if index == 0:
            self._embedded.append(hidden)
        self._contexts[index] = context
        if index == len(self._contexts) - 1:
            raise _LastLayer
        return hidden


def check_streams(source: Source) -> None:
    """Check that the checkpoint has every tensor of transformers' model, in its shape.

    Raises:
        QuantizeError: a tensor is missing or has another shape, or `Stream` cannot run the model.
    """
    for name, tensor in _skeleton(source).state_dict().items():
        stored = source.tensors.get(f"model.{name}")
        if stored is None:
            raise QuantizeError(f"{source.directory} is incomplete: model.{name} is missing")
        if stored.shape != tuple(tensor.shape):
            raise QuantizeError(
                f"{source.directory}: model.{name} has the shape {list(stored.shape)}; of "
                f"config.json it is {list(tensor.shape)}"
            )


class _LastLayer(Exception):
    """The model has reached its last decoder layer."""


def _skeleton(source: Source) -> Any:
    """The decoder of transformers, without its weights (on the meta device)."""
    transformers = import_transformers("--method gptq")
    try:
        config = transformers.AutoConfig.from_pretrained(source.directory, local_files_only=True)
        with torch.device("meta"):
            decoder = transformers.AutoModel.from_config(config, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise QuantizeError(f"{source.directory}: transformers cannot load it: {error}") from None
    decoder.rotary_emb = type(decoder.rotary_emb)(config=config)  # computed, not in a file
    for name, buffer in decoder.named_buffers():
        if buffer.is_meta:
            why = f"{config.model_type} computes {name}, which is in no file"
            raise QuantizeError(f"--method gptq: {why}; use another method")
    return decoder.eval()
