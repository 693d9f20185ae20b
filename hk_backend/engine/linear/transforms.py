"""Rotations in compressed-tensors' `transform_config`, which llm-compressor writes.

An *offline* transform is in the weights already: a layer with no other is an ordinary one. An
*online* transform is left to whoever serves the layer. HK does one kind: Sylvester's Hadamard
matrix on blocks of the input, before weights in an MX format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from compressed_tensors.transform import TransformArgs, TransformConfig, TransformScheme
from compressed_tensors.utils import is_match

from hk_backend.engine.linear.rotated import TRANSFORMS_KEY, RotationError
from hk_backend.engine.linear.shards import CheckpointError, name_of
from hk_backend.reference.rotation import ROTATIONS, hadamard

LINEAR = torch.nn.Linear(1, 1, device="meta")
EMBEDDING = torch.nn.Embedding(1, 1, device="meta")
"""Modules of the classes that layers had for the checkpoint's writer: targets may name classes."""
ATTENTION = {"q_attn", "k_cache"}
"""Locations in attention. A rotation of queries and keys alike leaves their products as they are,
so nobody needs to do it."""
EXPERT = ("gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")
"""Names of an expert's layers in checkpoints."""


@dataclass(frozen=True)
class Online:
    """Online transforms of one layer.

    Args:
        rotation: channels of the input that are rotated together, if HK can do it all; else 0.
        why: text about a transform that HK does not do; empty if there is none.
        modules: names of the submodules in the checkpoint that hold the matrices.
    """

    rotation: int = 0
    why: str = ""
    modules: tuple[str, ...] = ()


class _Transform(NamedTuple):
    group: str
    scheme: TransformScheme
    args: TransformArgs

    @property
    def module(self) -> str:
        return f"{self.group}_{self.args.location}"

    def is_of(self, name: str, like: torch.nn.Module) -> bool:
        return bool(is_match(name, like, self.args.targets, self.args.ignore))


def check_transforms(config: Mapping[str, Any]) -> None:
    """Checks the `transform_config` of a `quantization_config` as a whole.

    Raises:
        RotationError: the library does not know an entry, or attention would need a rotation.
    """
    of_attention: dict[str, list[TransformArgs]] = {}
    for each in _online(config):
        if each.args.location in ATTENTION:
            of_attention.setdefault(each.group, []).append(each.args)
    for group, found in of_attention.items():
        told = f"{TRANSFORMS_KEY} {group!r}: location {found[0].location!r} is not valid"
        alike = all(_placeless(each) == _placeless(found[0]) for each in found)
        if {each.location for each in found} != ATTENTION or not alike:
            raise RotationError(
                f"{told}: no engine rotates queries or keys: expected 'q_attn' and 'k_cache' "
                "alike, which cancel"
            )
        if config.get("kv_cache_scheme"):
            raise RotationError(f"{told} with a kv_cache_scheme, made for rotated keys")


def online(
    config: Mapping[str, Any] | None, names: Iterable[str], like: torch.nn.Module = LINEAR
) -> Online:
    """Online transforms of a layer in a checkpoint with this `quantization_config`.

    Args:
        names: names of the layer's shards in the checkpoint; they run as one layer.
        like: a module of the class that the layer had for the checkpoint's writer.
    """
    everything = [each for each in _online(config or {}) if each.args.location not in ATTENTION]
    of_shards = {name: [each for each in everything if each.is_of(name, like)] for name in names}
    modules = {name: [each.module for each in found] for name, found in of_shards.items()}
    name, first = next(iter(of_shards.items()))
    if any(found != modules[name] for found in modules.values()):
        told = ", ".join(f"{name} {found}" for name, found in modules.items())
        why = f"{TRANSFORMS_KEY} of its shards: {told}: they run as one layer, so expected one"
    elif not first:
        return Online()
    else:
        why = _unlike_ours(first)
    rotation = 0 if why else int(first[0].scheme.head_dim)
    return Online(rotation, why, tuple(dict.fromkeys(chain(*modules.values()))))


def check_not_linear(
    config: Mapping[str, Any] | None, name: str, like: torch.nn.Module, experts: bool = False
) -> None:
    """Refuses online transforms of a layer for which no engine does them.

    Args:
        like: as for `online`.
        experts: whether `name` is that of a mixture, not of a layer.

    Raises:
        RotationError: there are some.
    """
    for each in [f"{name}.0.{part}" for part in EXPERT] if experts else [name]:
        if found := online(config, [each], like).modules:
            raise RotationError(
                f"{name}: {TRANSFORMS_KEY} has {', '.join(found)} for it, which no engine does: "
                "expected none but for linear layers"
            )


def _online(config: Mapping[str, Any]) -> Iterator[_Transform]:
    """Every online transform of a `quantization_config`, whatever it is of.

    Raises:
        RotationError: the library does not know an entry.
    """
    if not (found := config.get(TRANSFORMS_KEY)):
        return
    try:
        groups = TransformConfig.model_validate(found).config_groups
    except ValueError as error:
        raise RotationError(f"{TRANSFORMS_KEY}: {error}") from error
    for group, scheme in groups.items():
        yield from (_Transform(group, scheme, each) for each in scheme.apply if each.is_online())


def _placeless(args: TransformArgs) -> TransformArgs:
    return args.model_copy(update={"location": None})


def _unlike_ours(found: list[_Transform]) -> str:
    """Text about the first thing in a layer's transforms that HK does not do, or empty."""
    if len(found) > 1:
        told = " and ".join(each.module for each in found)
        return f"{TRANSFORMS_KEY} has {told} for it: HK does one for a layer"
    [each] = found
    for name, value, valid in (
        ("location", each.args.location, ("input",)),
        ("type", each.scheme.type, ("hadamard",)),
        ("randomize", each.scheme.randomize, (False,)),
        ("head_dim", each.scheme.head_dim, ROTATIONS),
    ):
        if value not in valid:
            return (
                f"{TRANSFORMS_KEY} {each.group!r}: {name} {value!r} is not served by HK, which has "
                f"{', '.join(map(repr, valid))}"
            )
    return ""


class Matrix(torch.nn.Module):
    """Takes the matrix of a layer's transform from the checkpoint, and keeps nothing.

    Args:
        name: name of the layer.
        rotation: the number of channels that the matrix is to rotate.
    """

    def __init__(self, name: str, rotation: int) -> None:
        super().__init__()
        self.name, self.rotation = name, rotation
        weight: Any = torch.nn.Parameter(torch.empty(0), requires_grad=False)
        weight.weight_loader = self._check
        self.weight = weight

    def _check(self, parameter: Any, loaded: torch.Tensor, *shard: Any) -> None:
        expected = hadamard(self.rotation).sign()
        found = loaded.double()
        if found.shape != expected.shape or not torch.equal(found / found[0, 0], expected):
            raise CheckpointError(
                f"{self.name}.weight is not valid: expected the Hadamard matrix of "
                f"{self.rotation} channels in Sylvester's order, as {TRANSFORMS_KEY} says"
            )


def take_matrices(layer: torch.nn.Module, found: Online) -> None:
    """Lets a layer whose transforms HK does take their matrices from the checkpoint."""
    for module in found.modules:
        layer.register_module(module, Matrix(f"{name_of(layer)}.{module}", found.rotation))
