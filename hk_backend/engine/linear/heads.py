"""The LM head in a quantised format: who asks for it, and how it is packed.

A checkpoint holds the head's table in 16 bits, whatever the format of its layers, so that every
tool can read it. HK packs the head in another format on request. The request is the option `head`
of the hk_* methods, or in any other convention the key `hk_head` at the top level of a
`quantization_config`. Stock engines ignore that key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from hk_backend.devices import verdict_of_device
from hk_backend.engine.holding import holding
from hk_backend.engine.linear.online import pack_online
from hk_backend.engine.linear.options import Options, chosen_embedding, chosen_head
from hk_backend.engine.linear.packed_layer import pack_layer
from hk_backend.engine.linear.route import is_attached
from hk_backend.ops import LinearRequest
from hk_backend.ops.head_format import (
    EMBEDDING_KEY,
    HEAD_KEY,
    HEADS,
    IN_HEAD,
    KEPT,
    embedding_option,
    head_option,
    head_rounding,
)
from hk_backend.ops.look_up import supports_look_up
from hk_backend.terms.verdict import Verdict
from hk_backend.terms.weight_format import FORMATS, ROTATED

ASKER = "quantization_config"


@dataclass(frozen=True)
class Head:
    """The format requested for a model's LM head, independent of other layers.

    Args:
        format: one of `HEADS`.
        embedding: one of `EMBEDDINGS`.
        asker: who requests it, for errors.
        option: name of the option with the format, for errors.
        beside: name of the option of the embedding, for errors.
    """

    format: str = KEPT
    embedding: str = KEPT
    asker: str = ASKER
    option: str = HEAD_KEY
    beside: str = EMBEDDING_KEY

    def format_of(self, layer: Any) -> str:
        """The format in which to serve a head; a packed one keeps its format."""
        if not is_attached(layer):
            return self.format
        held: str = layer.__dict__["hk_packed"].format
        return held if FORMATS[held].is_quantised else KEPT

    def check(
        self,
        shape: tuple[int, int],
        dtype: torch.dtype,
        device_type: str,
        verdict_on: Callable[[LinearRequest], Verdict],
    ) -> None:
        """Refuses a head format, or a place for the embedding, that this process does not serve.

        Args:
            shape: `[n, k]` of the head's table.
            dtype, device_type: those of the model.
            verdict_on: the engine's verdict.

        Raises:
            ValueError: the format or place is not served; the message lists those that are.
        """
        if self.format == KEPT:
            return

        def verdict_in(format: str) -> Verdict:
            activations, rotation = head_rounding(format, shape[1])
            facts = device_type, dtype, format, *shape, activations
            return verdict_on(LinearRequest(*facts, rotation=rotation))

        verdict = verdict_in(self.format)
        if not verdict:
            valid = ", ".join([KEPT, *filter(verdict_in, HEADS[1:])])
            raise ValueError(
                f"{self.asker}: {self.option} {self.format!r} is not valid: {verdict.why}: "
                f"expected one of {valid}"
            )
        rows = verdict_of_device(device_type, lambda on: supports_look_up(on.weight_layout))
        if self.embedding == IN_HEAD and not rows:
            raise ValueError(
                f"{self.asker}: {self.beside} {IN_HEAD!r} is not valid: {rows.why}: expected {KEPT}"
            )


KEPT_HEAD = Head()
"""The head of a model without any request."""


def quantization_of(config: Any) -> Mapping[str, Any]:
    """The quantisation in a model's transformers `config`; empty if there is none."""
    text = getattr(config, "text_config", None)
    places = (config, "quantization_config"), (text, "quantization_config")
    for owner, name in (*places, (config, "compression_config")):
        if found := getattr(owner, name, None):
            return found if isinstance(found, Mapping) else dict(found.to_dict())
    return {}


def head_in(config: Mapping[str, Any]) -> Head:
    """The head that a checkpoint's `quantization_config`, of any convention, requests.

    Raises:
        ValueError: the format does not exist.
    """
    method = str(config.get("quant_method"))
    option, beside = head_option(method), embedding_option(method)
    asker = ASKER if option == HEAD_KEY else method
    format = chosen_head(asker, option, config.get(option))
    embedding = chosen_embedding(asker, beside, config.get(beside), format)
    return Head(format, embedding, asker, option, beside)


def head_of(method: str, options: Options) -> Head:
    """The head that the options of an hk_* method request."""
    option, beside = head_option(method), embedding_option(method)
    return Head(options.head, options.embedding, method, option, beside)


def pack_head(layer: Any, table: torch.Tensor, format: str) -> None:
    """Packs a head's `table` `[vocabulary, K]`, bf16, fp16 or fp32, and attaches it to `layer`.

    Args:
        format: the format to serve, one of `FORMATS`; the table's own format leaves it unquantised.

    Raises:
        CheckpointError: a number to quantise is not finite.
    """
    if FORMATS[format].is_quantised:
        activations, rotation = head_rounding(format, table.shape[1])
        pack_online(layer, table, Options(format, ROTATED.get(activations, activations), rotation))
    else:
        pack_layer(layer, table, format)


_asked: ContextVar[Head] = ContextVar("asked", default=KEPT_HEAD)


def requesting(head: Head) -> AbstractContextManager[None]:
    """Context for the loading of a model, in which `head` is the requested one."""
    return holding(_asked, head)


def requested_head() -> Head:
    """The head requested for the model that is being loaded."""
    return _asked.get()
