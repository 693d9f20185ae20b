"""Parses `--shape`: the sizes of a launch, as text, for the kernels of each operator.

batch=16,heads=64/8,tokens=4096,causal        attention_prefill
heads=32/8,tokens=512+64,cached=0+2000        two requests; the second has a cached prefix
heads=64/8,tokens=8192,causal,window=1024     each query sees 1024 keys
m=4096,n=4096,k=4096                          gemm
m=4096,k=8192                                 quantize_fp8
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.masks import PARTS, WINDOWED
from hk_backend.kernels.row_sources import PACKED
from hk_backend.lab.timing.launch import Launch
from hk_backend.lab.timing.standard import LAUNCHES, Shape
from hk_backend.lab.timing.workloads import attention, gemm, merge, quantize

LONGEST = 1 << 17
"""Most keys of a request, and longest side of a GEMM, for which the model is fast enough."""
MOST = 1 << 12
"""Largest number of requests, of heads and of parts."""
WORKGROUPS = 1 << 20


class ShapeError(ValueError):
    """The shape is not one of the kernel's operator, or the kernel does not take it."""


@dataclass(frozen=True)
class Workload:
    """A kernel with a shape; `text` is the shape in words."""

    entry: KernelEntry
    shape: Shape
    text: str

    def launch(self) -> Launch:
        """Prepare the launch. Raises `ShapeError` if its buffers do not fit the address space."""
        try:
            return LAUNCHES[self.entry.operator](self.entry, self.shape)
        except (OSError, OverflowError, MemoryError) as error:
            raise ShapeError(f"{self.text}: its buffers do not fit: {error}") from None


def parse(entry: KernelEntry, text: str) -> Workload:
    """The workload of `entry` with the shape that `text` describes. Raises `ShapeError`."""
    valid = FORMS.get(entry.operator)
    if valid is None:
        there = ", ".join(FORMS)
        raise ShapeError(f"{entry.name}: {entry.operator} has no shapes; valid: {there}")
    items = _items(text, valid)
    try:
        return PARSERS[entry.operator](entry, items)
    except ShapeError:
        raise
    except ValueError as error:  # the shape's own class refuses its sizes
        raise ShapeError(f"{text!r}: {error}") from None


FORMS: Mapping[str, Mapping[str, str]] = {
    "attention_prefill": {
        "tokens": "new tokens of each request",
        "heads": "query heads/KV heads",
        "batch": "requests",
        "cached": "keys before the new tokens",
        "keys": "all keys, instead of cached",
        "block_size": "of a paged cache",
        "parts": "that share the keys",
        "causal": "a flag",
        "window": "keys that a query sees",
    },
    "attention_merge": {
        "tokens": "rows of each head",
        "heads": "of the queries",
        "parts": "of the keys",
    },
    "gemm": {"m": "rows", "n": "columns", "k": "of the sum"},
    "quantize_fp8": {"m": "rows", "k": "columns"},
}
"""Names of sizes that a shape may have and their meaning, by operator."""
FLAGS = ("causal",)


def _items(text: str, valid: Mapping[str, str]) -> dict[str, str]:
    """Split `name=value, ...` into a dictionary; every name may occur once."""
    items: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in valid:
            raise ShapeError(f"{part!r} has no name of a size; valid: {', '.join(valid)}")
        if name in items:
            raise ShapeError(f"{name} is there twice")
        if (name in FLAGS) == bool(equals):
            raise ShapeError(f"{part!r}; valid: {name if name in FLAGS else f'{name}=NUMBER'}")
        items[name] = value
    return items


def _numbers(items: Mapping[str, str], name: str, most: int, least: int = 1) -> list[int]:
    """Parse `1+2+3`; every number must be from `least` to `most`."""
    found = []
    for part in items[name].split("+"):
        if not part.strip().isdecimal() or not least <= int(part) <= most:
            raise ShapeError(f"{name}={items[name]}: {part!r}; valid: {least} to {most}")
        found.append(int(part))
    return found


def _number(items: Mapping[str, str], name: str, most: int, default: int | None = None) -> int:
    if name not in items:
        if default is None:
            raise ShapeError(f"{name} is missing; valid: {name}=NUMBER, 1 to {most}")
        return default
    numbers = _numbers(items, name, most)
    if len(numbers) > 1:
        raise ShapeError(f"{name}={items[name]}; valid: one number, 1 to {most}")
    return numbers[0]


def _gemm(entry: KernelEntry, items: Mapping[str, str]) -> Workload:
    m, n, k = (_number(items, name, LONGEST) for name in ("m", "n", "k"))
    return Workload(entry, gemm.Shape(m, n, k), f"m={m}, n={n}, k={k}")


def _merge(entry: KernelEntry, items: Mapping[str, str]) -> Workload:
    sizes = {name: _number(items, name, LONGEST) for name in ("tokens", "heads", "parts")}
    text = ", ".join(f"{number} {name}" for name, number in sizes.items())
    return Workload(entry, merge.Shape(**sizes), text)


def _quantize(entry: KernelEntry, items: Mapping[str, str]) -> Workload:
    m, k = (_number(items, name, LONGEST) for name in ("m", "k"))
    return Workload(entry, quantize.Shape(m, k), f"m={m}, k={k}")


def _attention(entry: KernelEntry, items: Mapping[str, str]) -> Workload:
    for name, form in (("tokens", "tokens=4096"), ("heads", "heads=64/8")):
        if name not in items:
            raise ShapeError(f"{name} is missing; valid: {name} as in {form}")
    if "keys" in items and "cached" in items:
        raise ShapeError("keys and cached say the same; valid: one of them")
    if "block_size" in items and entry.facts["keys"] == PACKED:
        raise ShapeError(f"block_size: {entry.name} reads packed keys; valid: with a paged kernel")
    heads, kv_heads = _heads(items["heads"])
    tokens = _numbers(items, "tokens", LONGEST)
    keys = _keys(items, tokens)
    batch = _number(items, "batch", MOST, default=1)
    given = _number(items, "block_size", LONGEST, default=0)
    block_size = attention.block_size_for(str(entry.facts["keys"]), given)
    causal = "causal" in items
    window = _number(items, "window", LONGEST, default=0)
    if window and entry.facts["mask"] not in WINDOWED:
        masks = " or ".join(WINDOWED)
        raise ShapeError(f"window: {entry.name} has none; valid: with a kernel of the mask {masks}")
    parts = _number(items, "parts", MOST, default=1)
    if parts > 1 and entry.facts["mask"] not in PARTS:
        masks = " or ".join(PARTS)
        raise ShapeError(f"parts: {entry.name} has none; valid: with a kernel of the mask {masks}")
    workgroups = (batch * sum(-(-own // entry.tile.rows) for own in tokens)) * heads * parts
    if workgroups > WORKGROUPS:
        raise ShapeError(f"{workgroups:,} workgroups; valid: up to {WORKGROUPS:,}")
    sizes = tokens * batch, keys * batch, heads, kv_heads
    shape = attention.Shape(*sizes, causal, block_size, window, parts)
    words = [
        f"{len(shape.queries)} request{'s' * (len(shape.queries) > 1)}",
        f"heads {heads}/{kv_heads}",
        f"{_list(tokens)} tokens",
        *([f"{_list(keys)} keys"] if keys != tokens else []),
        *([f"blocks of {block_size}"] if entry.facts["keys"] != PACKED else []),
        *([f"{parts} parts"] if parts > 1 else []),
        "causal" if causal else "not causal",
        *([f"window {window}"] if window else []),
    ]
    return Workload(entry, shape, ", ".join(words))


def _heads(text: str) -> tuple[int, int]:
    numbers = text.split("/")
    if len(numbers) != 2 or not all(n.isdecimal() and 1 <= int(n) <= MOST for n in numbers):
        raise ShapeError(f"heads={text}; valid: query heads/KV heads, as in 64/8, up to {MOST}")
    return int(numbers[0]), int(numbers[1])


def _keys(items: Mapping[str, str], tokens: Sequence[int]) -> list[int]:
    """Number of keys of each request: its new tokens and its cached tokens."""
    name = "keys" if "keys" in items else "cached"
    if name not in items:
        return list(tokens)
    given = _numbers(items, name, LONGEST, least=0)
    if len(given) not in {1, len(tokens)}:
        raise ShapeError(
            f"{name}={items[name]}: {len(given)} numbers for {len(tokens)} requests; valid: one "
            "for all, or one each"
        )
    given = given * len(tokens) if len(given) == 1 else given
    if name == "keys":
        return given
    return [own + cached for own, cached in zip(tokens, given, strict=True)]


def _list(numbers: Sequence[int]) -> str:
    same = len(set(numbers)) == 1
    return str(numbers[0]) if same else "+".join(map(str, numbers))


PARSERS: Mapping[str, Callable[[KernelEntry, Mapping[str, str]], Workload]] = {
    "attention_prefill": _attention,
    "attention_merge": _merge,
    "gemm": _gemm,
    "quantize_fp8": _quantize,
}
"""Functions that turn named sizes into a workload, by operator; same operators as `FORMS`."""
