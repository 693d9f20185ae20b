"""Parameters that are empty except while they are loaded.

SGLang updates the weights of a running server just as it first loaded them: through each
parameter's `weight_loader`, some or all of a model's tensors, in any order. So a parameter that HK
has packed stays registered, without elements.

The first tensor that arrives for it reallocates its memory, marked as not loaded yet. When the last
one has arrived, or SGLang reports that it has loaded everything, HK packs it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sglang.srt.layers.linear import RowParallelLinear
from sglang.srt.layers.parameter import BasevLLMParameter, RowvLLMParameter

from hk_backend.engine.linear.checkpoint_tensors import UNSET, UNSET_CODES
from hk_backend.engine.linear.online import shard_index, shard_indices
from hk_backend.engine.linear.packed_layer import return_memory
from hk_backend.engine.linear.route import is_attached
from hk_backend.engine.linear.shards import CheckpointError, shard_widths


@contextmanager
def releasing(layer: Any, *names: str, **how: Any) -> Iterator[None]:
    """Context for packing a layer, which is then released, in an update even after a failure.

    Args:
        how: arguments of `release`.
    """
    try:
        yield
    except CheckpointError:
        if is_attached(layer):
            release(layer, *names, **how)
        raise
    release(layer, *names, **how)


def release(
    layer: Any,
    *names: str,
    shared: tuple[str, ...] = (),
    whole: Callable[[Any], None] | None = None,
) -> None:
    """Frees parameters of `layer` until they are loaded again.

    Args:
        shared: parameters with the same memory.
        whole: called with `layer` as soon as every shard of a parameter has arrived.
    """
    freed = 0
    layer.__dict__.setdefault("hk_arrived", set()).clear()
    for name in names:
        parameter = layer._parameters.get(name)
        if parameter is None:
            continue
        freed += parameter.nbytes if parameter.device.type == "cpu" else 0
        shape = parameter.shape if parameter.numel() else parameter.hk_shape
        expect(layer, name, shape, whole)
        parameter.hk_shared = [layer._parameters[each] for each in shared if name in shared]
    return_memory(freed)


def expect(
    layer: Any, name: str, shape: torch.Size, whole: Callable[[Any], None] | None = None
) -> None:
    """Makes a parameter of `layer` empty until a tensor for it arrives."""
    parameter: Any = layer._parameters[name]
    parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
    parameter.hk_shape = shape
    parameter.hk_is_scale = name != "weight" and parameter.is_floating_point()
    parameter.hk_arrived = layer.__dict__.setdefault("hk_arrived", set())
    parameter.hk_shards = set(range(len(shard_widths(layer) or [0])))
    attribute = "_weight_loader" if isinstance(parameter, BasevLLMParameter) else "weight_loader"
    load = getattr(parameter, attribute, None)
    if load is None or hasattr(load, "hk_original"):
        return

    def loader(into: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        give_memory(into)
        load(into, tensor, *args, **kwargs)
        shard = next(iter((*args, *kwargs.values())), None)
        into.hk_arrived |= shard_indices(shard) or into.hk_shards
        if into.hk_arrived >= into.hk_shards and whole is not None:
            whole(layer)

    loader.hk_original = load  # type: ignore[attr-defined]
    setattr(parameter, attribute, loader)


def expect_all(parameter: Any) -> None:
    """Allocates a parameter that is about to be filled without its `weight_loader`."""
    give_memory(parameter)
    if hasattr(parameter, "hk_arrived"):
        parameter.hk_arrived |= parameter.hk_shards


def give_memory(parameter: Any) -> None:
    """Allocates a parameter that is empty, and marks its values as not loaded."""
    shape = getattr(parameter, "hk_shape", None)
    if shape is None or parameter.numel():
        return
    data = torch.empty(shape, dtype=parameter.dtype, device=parameter.device)
    if parameter.hk_is_scale:
        data.fill_(UNSET)
    else:
        data.view(torch.uint8).fill_(UNSET_CODES)
    for each in (parameter, *getattr(parameter, "hk_shared", ())):
        each.data = data


def arrived_shards(layer: Any) -> set[int]:
    """Numbers of the shards that were loaded since `layer` was released."""
    found: set[int] = layer.__dict__.get("hk_arrived", set())
    return found


def whole_tensors(layer: Any, load: Any, rows_of_one: int = 1) -> Any:
    """Wraps the loader `load` of a parameter of `layer` so that it takes only full-size tensors.

    SGLang's loader pads short tensors with zeros, for a few models whose layers it pads. A
    quantised weight must not be padded, as the zeros would be read as codes and scales.

    Args:
        rows_of_one: output features for each row of the tensor.
    """

    def loader(parameter: Any, tensor: torch.Tensor, *shard: Any, **named: Any) -> None:
        given = next(iter((*shard, *named.values())), None)
        sizes = _shard_sizes(layer)
        if isinstance(given, (int, str)) and tensor.dim() and sizes:
            _check_size("rows", len(tensor), -(-sizes[shard_index(given)] // rows_of_one))
        if isinstance(layer, RowParallelLinear) and isinstance(parameter, RowvLLMParameter):
            columns = getattr(parameter, "hk_shape", parameter.shape)[1]
            if not _is_presharded(layer):
                columns *= layer.input_size // layer.input_size_per_partition
            _check_size("columns", tensor.shape[-1], columns)
        load(parameter, tensor, *shard, **named)

    return loader


def _check_size(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"its shape has {found} {what}: expected {expected}")


def _is_presharded(layer: Any) -> bool:
    return bool(getattr(layer, "use_presharded_weights", False))


def _shard_sizes(layer: Any) -> list[int]:
    """Output features of each shard in the checkpoint; empty if not known."""
    if _is_presharded(layer):
        return []
    if hasattr(layer, "total_num_kv_heads"):
        heads, head = layer.total_num_kv_heads, layer.head_size
        return [layer.total_num_heads * head, heads * head, heads * layer.v_head_size]
    return list(getattr(layer, "output_sizes", ()))
