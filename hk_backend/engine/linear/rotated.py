"""Layers with a rotated weight in the checkpoint; only HK rotates their inputs.

Anything else would compute nonsense for such a layer, so an engine stops if HK does not serve it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from hk_backend.ops.rotation import ROTATION_KEY
from hk_backend.terms.verdict import SERVED, Verdict, refused

TRANSFORMS_KEY, AUTO_ROUND_KEY = "transform_config", "rotation_config"
"""Keys of other tools in a `quantization_config`: compressed-tensors' and auto-round's."""
TWICE = f"{ROTATION_KEY} and {TRANSFORMS_KEY} both rotate it: expected one of them"
NOT_QUANTISED = "HK rotates no inputs before a weight that is not quantised"
KEYS = f"{ROTATION_KEY}, {TRANSFORMS_KEY} or {AUTO_ROUND_KEY}"


class RotationError(RuntimeError):
    """A rotated layer cannot be served; the message names it and says why."""


def only_hk(layer: str, rotation: int, why: str) -> RotationError:
    """The error for a rotated `layer` that HK does not serve."""
    return RotationError(
        f"{layer}: the checkpoint's weight is rotated ({KEYS}: {rotation}), and nothing but HK can "
        f"serve it: {why}"
    )


@contextmanager
def no_other(layer: str, rotation: int) -> Iterator[None]:
    """Context for an engine's search for code that serves `layer`, rotated unless `rotation` is 0.

    Raises:
        RotationError: instead of the engine's error, with its reason.
    """
    try:
        yield
    except RotationError:
        raise
    except Exception as error:
        if not rotation:
            raise
        raise only_hk(layer, rotation, str(error) or NOT_QUANTISED) from error


def verdict_on_shards(k: int, rotation: int, ranks: int) -> Verdict:
    """Whether no group of rotated channels crosses a shard.

    Args:
        k: input features on each rank.
        ranks: number of ranks that share the layer's input features.
    """
    if k % rotation == 0:
        return SERVED
    where = "" if ranks == 1 else f" on each of {ranks} ranks"
    return refused(f"{k} input features{where} are not a multiple of the rotation, {rotation}")


def check_agreement(layer: str, shards: Mapping[str, int]) -> None:
    """Checks that all shards of a merged layer have the same rotation, as they have the same
    inputs.

    Args:
        shards: rotation of each shard; 0: none.

    Raises:
        RotationError: the rotations differ.
    """
    if len(set(shards.values())) > 1:
        found = ", ".join(f"{name} {rotation}" for name, rotation in shards.items())
        raise RotationError(
            f"{layer}: {ROTATION_KEY} of its shards: {found}: they run as one layer, so expected "
            "one for all"
        )
