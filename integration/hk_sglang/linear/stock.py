"""SGLang's own method for a layer of a quantised checkpoint, and whether it computes here.

SGLang chooses a method when it creates a layer, before any weight is loaded, and so does HK. A
contest for such a layer has random values, in the sizes that the checkpoint will fill.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.layers import linear

from hk_backend.engine import loggers
from hk_backend.engine.evidence import NoContest
from hk_backend.engine.linear.contest import Multiply

logger = loggers.of("sglang", "linear")


@dataclass(frozen=True)
class Stock:
    """SGLang's own method.

    Attributes:
        make: makes the method for a layer.
        name: name of the configuration that chooses it.
    """

    make: Callable[[Any], Any]
    name: str


def left_to_sglang(layer: Any, name: str, why: str, stock: Callable[[Any], Any]) -> Any:
    """SGLang's own method for `layer`; if there is none, the log has both reasons."""
    layer.__dict__["hk_left"] = why
    try:
        return stock(layer)
    except Exception:
        logger.error("hk_backend: %s is left to SGLang, which stops there: %s", name, why)
        raise


def create(layer: Any, method: Any, arguments: dict[str, Any]) -> None:
    """Gives `layer` to SGLang's `method`; `arguments` are those of `create_weights`."""
    layer.quant_method = method
    method.create_weights(layer=layer, **arguments | {"weight_loader": _loader_for(method, layer)})


def product_of(layer: Any, stock: Stock, arguments: dict[str, Any]) -> Multiply:
    """SGLang's product for `layer`, a stand-in without parameters, with random values.

    Raises:
        NoContest: SGLang has no method for it here, or one that fails.
    """
    k, dtype = arguments["input_size_per_partition"], arguments["params_dtype"]
    try:
        method = stock.make(layer)
        create(layer, method, arguments)
        fill(layer)
        method.process_weights_after_loading(layer)
        method.apply(layer, torch.zeros(1, k, dtype=dtype))
    except Exception as error:  # whatever its kernels need and this machine lacks
        raise NoContest(f"{stock.name}: {type(error).__name__}: {error}") from error
    return lambda x: method.apply(layer, x)


def fill(layer: Any) -> None:
    """Gives random values to all parameters of `layer`, equal ones to equal sizes."""
    for name, parameter in layer.named_parameters(recurse=False):
        parameter.data.copy_(_random(parameter.data, is_scale="scale" in name))


def _random(like: torch.Tensor, is_scale: bool) -> torch.Tensor:
    generator = torch.Generator(like.device).manual_seed(0)
    found = torch.empty_like(like, dtype=torch.float32)
    if like.dtype == torch.uint8:  # scales are powers of two, up to 1; codes are arbitrary
        first, last = (120, 127) if is_scale else (0, 255)
        found.random_(first, last + 1, generator=generator)
    elif not like.is_floating_point():
        found.zero_()
    elif is_scale:
        found.uniform_(1 / 32, 1 / 16, generator=generator)
    else:
        found.normal_(generator=generator)
    return found.to(like.dtype)


def _loader_for(method: Any, layer: Any) -> Any:
    """The loader that SGLang would have given to a layer with `method` (layers/linear.py)."""
    scheme = getattr(layer, "scheme", None)
    second = type(method).__name__ in linear.WEIGHT_LOADER_V2_SUPPORTED or (
        scheme is not None and scheme.requires_weight_loader_v2
    )
    return (
        layer.weight_loader_v2
        if second and hasattr(layer, "weight_loader_v2")
        else layer.weight_loader
    )
