"""The methods `hk_fp8`, `hk_mxfp8`, `hk_mxfp6` and `hk_mxfp4`, and their options.

- `format`: see `FORMATS_OF`.
- `activations`: see `pack_weight`; "none" is weight-only. Default: per token for FP8, the
  weight's format for mx.
- `rotation` (mx): channels along K that are rotated together, of weights and activations; 0: none.
  Default: hk_mxfp4 with quantised activations rotates while loading, by 64 or 32, as fits a layer.
- `ignore`: layer names, shell-style patterns, or regular expressions after `re:`.
- `head`: the LM head's format (`hk_backend.engine.linear.heads`). Default: "16", unquantised.
- `embedding`: "head" makes a tied embedding look its rows up in the packed head, and releases
  the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from hk_backend.engine.linear.shards import merged_names
from hk_backend.ops.head_format import EMBEDDINGS, HEADS, KEPT
from hk_backend.ops.rotation import fitting_rotation
from hk_backend.reference.rotation import ROTATIONS
from hk_backend.terms.weight_format import FORMATS, rotated_activations

Value = TypeVar("Value", str, int)
Default = TypeVar("Default", str, int | None)

FORMATS_OF = {
    "hk_fp8": ("fp8_e4m3fn", "fp8_e4m3fnuz"),
    "hk_mxfp8": ("mxfp8",),
    "hk_mxfp6": ("mxfp6_e2m3", "mxfp6_e3m2"),
    "hk_mxfp4": ("mxfp4",),
}
"""Formats of each method, the default first (FP8: the platform's own)."""
ROTATING = ("hk_mxfp4",)
"""Methods that rotate by default."""
REGEX = "re:"
"""Prefix of a pattern of `ignore` that is a regular expression, as in compressed-tensors."""
OPTIONS = ("format", "activations", "rotation", "ignore", "head", "embedding")


@dataclass
class Options:
    """Options of a method, completed and checked.

    Args:
        format: a format of `pack_weight`.
        activations: name of their rounding in `pack_weight`, without a rotation.
        rotation: rotation of every layer; None: the one that fits each layer.
        ignore: layers that stay unquantised.
        head: one of `HEADS`.
        embedding: one of `EMBEDDINGS`.
    """

    format: str
    activations: str
    rotation: int | None = 0
    ignore: list[str] = field(default_factory=list)
    head: str = KEPT
    embedding: str = KEPT

    def rounding(self, k: int) -> tuple[str, int]:
        """`activations` and `rotation` of `pack_weight`, for a layer with K inputs on this rank."""
        rotation = fitting_rotation(k) if self.rotation is None else self.rotation
        return rotated_activations(self.activations, rotation), rotation


def known_options(method: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The options in a `quantization_config`.

    Raises:
        ValueError: it has a key that is not an option of `method`.
    """
    options = {name: value for name, value in config.items() if name != "quant_method"}
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise ValueError(
            f"{method}: option {unknown[0]!r} is not valid: expected one of {', '.join(OPTIONS)}"
        )
    return options


def choose(
    method: str,
    fp8_format: str,
    format: str | None = None,
    activations: str | None = None,
    rotation: int | None = None,
    ignore: list[str] | None = None,
    serialized: bool = False,
    head: str | int | None = None,
    embedding: str | int | None = None,
) -> Options:
    """The requested options, completed with the defaults.

    Args:
        fp8_format: the platform's own FP8 format.
        serialized: whether the checkpoint holds quantised weights, rotated as `rotation` says.

    Raises:
        ValueError: an option of `method` has a value that it cannot have.
    """
    formats = FORMATS_OF[method]
    default = fp8_format if method == "hk_fp8" else formats[0]
    format = _chosen(method, "format", format, default, formats)
    known = FORMATS[format].roundings
    by_default = "token" if FORMATS[format].is_fp8 else "mx"
    activations = _chosen(method, "activations", activations, by_default, known)
    # a rotation improves the activations; weights alone are rounded worse with one
    rotates = method in ROTATING and activations == "mx" and not serialized
    rotations = (0, *ROTATIONS) if FORMATS[format].is_mx else (0,)
    found = _chosen(method, "rotation", rotation, None if rotates else 0, rotations)
    head = chosen_head(method, "head", head)
    embedding = chosen_embedding(method, "embedding", embedding, head)
    return Options(format, activations, found, _patterns(method, ignore), head, embedding)


def chosen_head(asker: str, option: str, value: Any) -> str:
    """The LM head's format in `option` of `asker`, or `KEPT`; 16 may be a number.

    Raises:
        ValueError: the format is not one of `HEADS`.
    """
    return _chosen(asker, option, _as_text(value), KEPT, HEADS)


def chosen_embedding(asker: str, option: str, value: Any, head: str) -> str:
    """The table in which the embedding looks up its rows, beside a `head` of this format.

    Raises:
        ValueError: it is not one of `EMBEDDINGS`, or the head is not packed in a format of its own.
    """
    found = _chosen(asker, option, _as_text(value), KEPT, EMBEDDINGS)
    if found != KEPT and head == KEPT:
        why = f"the head is not quantised: expected {KEPT}, or a format of the head"
        raise ValueError(f"{asker}: {option} {found!r} is not valid: {why}")
    return found


def _patterns(method: str, value: Any) -> list[str]:
    patterns = () if value is None else value
    if not (isinstance(patterns, (list, tuple)) and all(isinstance(p, str) for p in patterns)):
        expected = "a list of layer names or patterns"
        raise ValueError(f"{method}: ignore {value!r} is not valid: expected {expected}")
    for pattern in patterns:
        try:
            re.compile(pattern.removeprefix(REGEX) if pattern.startswith(REGEX) else "")
        except re.error as error:
            raise ValueError(
                f"{method}: ignore {pattern!r} is not valid ({error}): expected a regular "
                "expression after re:"
            ) from None
    return list(patterns)


def _as_text(value: Any) -> Any:
    return KEPT if value == int(KEPT) and type(value) is int else value


def _chosen(
    method: str, option: str, value: Value | None, default: Default, known: tuple[Value, ...]
) -> Value | Default:
    if value is None:
        return default
    if value not in known or type(value) is not type(known[0]):
        expected = ", ".join(map(str, known))
        raise ValueError(f"{method}: {option} {value!r} is not valid: expected one of {expected}")
    return value


def is_ignored(layer: str, patterns: Iterable[str], merged: Mapping[str, list[str]] | None) -> bool:
    """Whether a layer is to stay unquantised.

    Args:
        layer: name of the layer in the model.
        patterns: layer names, shell-style patterns, or regular expressions after `re:`. The latter
            match from the beginning of a name, as in compressed-tensors. They may name a merged
            layer or its shards.
        merged: names of a merged layer's shards in the checkpoint.

    Raises:
        ValueError: the patterns name only some of a merged layer's shards.
    """
    patterns = list(patterns)
    names = merged_names(layer, merged)
    if _matches(layer, patterns):
        return True
    ignored = [name for name in names if _matches(name, patterns)]
    if 0 < len(ignored) < len(names):
        kept = next(name for name in names if name not in ignored)
        raise ValueError(
            f"ignore: {ignored[0]} but not {kept}: they run as one layer, so ignore all or none"
        )
    return bool(ignored)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(
        re.match(pattern.removeprefix(REGEX), name)
        if pattern.startswith(REGEX)
        else fnmatchcase(name, pattern)
        for pattern in patterns
    )


def no_layer(method: str, layer: str, why: str) -> ValueError:
    """The error for a layer that HK does not serve and nothing else can compute."""
    return ValueError(
        f"{layer}: --quantization {method}: {why} (a layer can be left unquantised with the option "
        "`ignore`)"
    )


def no_experts(method: str, layer: str) -> ValueError:
    """The error for experts of a mixture that are to be quantised."""
    return ValueError(
        f"{layer}: --quantization {method}: HK has no kernel for experts of a mixture (they can be "
        "left unquantised with the option `ignore`)"
    )
