"""Layers of quantised checkpoints, for which HK's method replaces SGLang's if HK serves them."""

from __future__ import annotations

from typing import Any

from sglang.srt.layers import linear
from sglang.srt.layers.linear import LinearBase
from sglang.srt.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
)
from sglang.srt.layers.quantization.compressed_tensors.utils import check_equal_or_regex_match
from sglang.srt.layers.quantization.quark.quark import QuarkConfig

from hk_backend.engine.foreign import foreign
from hk_backend.engine.linear.rotated import RotationError, no_other
from hk_backend.engine.linear.shards import CheckpointError, merged_names
from hk_backend.engine.linear.transforms import take_matrices
from hk_backend.engine.patching import wrap
from hk_sglang.linear.methods import HKLinearMethod
from hk_sglang.linear.rotated import checked_method, rotation_of_layer, transforms_of
from hk_sglang.linear.schemes import CONFIGS, NotServed, Scheme, scheme_of
from hk_sglang.linear.stock import Stock, left_to_sglang


def install() -> None:
    """Makes SGLang's configurations return HK's method for layers; idempotent."""
    known = linear.WEIGHT_LOADER_V2_SUPPORTED
    for name in ("HKLinearMethod", "HKOnlineLinearMethod"):
        if name not in known:
            known.append(name)
    for config in CONFIGS:
        wrap(config, "get_quant_method", _method_of)


def _method_of(original: Any, config: Any, layer: Any, prefix: str) -> Any:
    def stock(layer: Any) -> Any:
        return original(config, layer, prefix)

    if not isinstance(layer, LinearBase):
        return checked_method(stock(layer), config, layer, prefix)
    note_ignored(config, prefix)
    try:
        scheme = _scheme(config, layer, prefix, foreign(original, "sglang"))
    except RotationError:
        raise
    except NotServed as left:
        if left.args:
            return left_to_sglang(layer, prefix, str(left), stock)
        return stock(layer)
    except Exception as error:  # SGLang has an error of its own for such a configuration
        return left_to_sglang(layer, prefix, f"{type(error).__name__}: {error}", stock)
    take_matrices(layer, transforms_of(config, prefix))
    return HKLinearMethod(scheme, Stock(stock, type(config).__name__))


def _scheme(config: Any, layer: Any, prefix: str, theirs: str) -> Scheme:
    """The scheme of a layer that HK may serve.

    Args:
        theirs: another plugin's function that chooses methods in place of SGLang's; or empty.

    Raises:
        NotServed: HK does not serve such a layer.
    """
    rotation = rotation_of_layer(config, layer, prefix)
    with no_other(prefix, rotation):
        if theirs:
            why = f"{type(config).__name__}.get_quant_method is another plugin's: {theirs}"
            raise NotServed(why)
        scheme = scheme_of(config, layer, prefix)
        return scheme.rotated(rotation) if rotation else scheme


LISTS = {CompressedTensorsConfig: "ignore", QuarkConfig: "exclude_layers"}
"""A configuration's field with the layers left unquantised: names, and patterns after `re:`."""


def note_ignored(config: Any, name: str) -> None:
    """Makes `config` leave the layer `name` unquantised if it leaves every shard so.

    SGLang reads shards' names only for models with `packed_modules_mapping`, which Llama, Mistral
    and Qwen lack.

    Raises:
        CheckpointError: it leaves only some of the shards unquantised.
    """
    field = next((field for kind, field in LISTS.items() if isinstance(config, kind)), None)
    own = name.rpartition(".")[2]
    if field is None or own in config.packed_modules_mapping:
        return
    patterns, shards = getattr(config, field), merged_names(name, None)
    if check_equal_or_regex_match(name, patterns):
        return
    left = [shard for shard in shards if check_equal_or_regex_match(shard, patterns)]
    if left == shards:
        setattr(config, field, [*patterns, name])
    elif left:
        others = [shard for shard in shards if shard not in left]
        raise CheckpointError(
            f"{name}: the checkpoint leaves {left[0]} as it is, but not {others[0]}; SGLang runs "
            "them as one layer"
        )
