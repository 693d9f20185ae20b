"""The decoder layers of a checkpoint on calibration tokens, one layer in memory at a time."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import torch

from hk_backend.extras import missing
from hk_backend.quantize.errors import EXTRA, QuantizeError
from hk_backend.quantize.source import EMBEDDING, KNOWN, Source


class Stream:
    """`hidden`: what goes into the next decoder layer, float32 `[1, length, hidden size]` for each
    of the `windows`, token ids `[count, length]`."""

    def __init__(self, source: Source, windows: torch.Tensor) -> None:
        self._source = source
        self._decoder = _skeleton(source)
        self.hidden: list[torch.Tensor] = []
        self._context: dict[str, Any] = {}
        self._enter(windows)

    def load(self, index: int) -> torch.nn.Module:
        """Decoder layer `index` with its weights, float32."""
        layer: torch.nn.Module = copy.deepcopy(self._decoder.layers[index])
        prefix = f"model.layers.{index}."
        weights = {name: self._source.finite(prefix + name).float() for name in layer.state_dict()}
        layer.load_state_dict(weights, assign=True)
        return layer.requires_grad_(False)

    def forward(self, layer: torch.nn.Module) -> list[torch.Tensor]:
        """What `layer` makes of every window."""
        with torch.inference_mode():
            results = [layer(hidden, **self._context) for hidden in self.hidden]
        return [result[0] if isinstance(result, tuple) else result for result in results]

    def _enter(self, windows: torch.Tensor) -> None:
        """Run the model up to its first layer; keep what it passes to every layer besides
        `hidden`."""

        def reached(layer: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
            self.hidden.append(args[0])
            self._context = kwargs
            raise _Reached

        decoder = copy.deepcopy(self._decoder)
        table = self._source.finite(f"{EMBEDDING}.weight").float()
        decoder.embed_tokens.load_state_dict({"weight": table}, assign=True)
        decoder.layers[0].register_forward_pre_hook(reached, with_kwargs=True)
        for window in windows:
            with torch.inference_mode(), contextlib.suppress(_Reached):
                decoder(window[None], use_cache=False)


def check_streams(source: Source, length: int) -> None:
    """Every decoder layer gets what the model hands to its first: a mask and rotary embeddings.

    Raises:
        QuantizeError: `Stream` cannot go through the model in windows of `length` tokens.
    """
    config = _skeleton(source).config
    kinds = sorted(set(getattr(config, "layer_types", None) or ()))
    window = getattr(config, "sliding_window", None)
    only_masks_differ = config.model_type in KNOWN
    if len(kinds) > 1 and not (only_masks_differ and window and window >= length):
        raise QuantizeError(
            f"--method gptq: layers of different kinds ({', '.join(kinds)}, a window of {window}), "
            f"calibrated on {length} tokens at once; use another method"
        )


class _Reached(Exception):
    """The model has got to its first decoder layer."""


def _skeleton(source: Source) -> Any:
    """The decoder of transformers, all of whose weights are yet to be read."""
    try:
        import transformers
    except ImportError as error:
        raise QuantizeError(missing(error, "--method gptq", EXTRA)) from None
    try:
        config = transformers.AutoConfig.from_pretrained(source.directory, local_files_only=True)
        with torch.device("meta"):
            decoder = transformers.AutoModel.from_config(config, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise QuantizeError(f"{source.directory}: transformers cannot load it: {error}") from None
    decoder.rotary_emb = type(decoder.rotary_emb)(config=config)  # computed, in no file
    for name, buffer in decoder.named_buffers():
        if buffer.is_meta:
            why = f"{config.model_type} computes {name}, which is in no file"
            raise QuantizeError(f"--method gptq: {why}; use another method")
    return decoder.eval()
