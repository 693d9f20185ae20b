"""Launches of an attention kernel's code object on the emulator, without the operator in between.

The arguments are derived here once more, from csrc/include/hk/args/attention_prefill.hpp. How the
devices derive them is tested against the same reference elsewhere. Every buffer is mapped with the
exact bounds of what it spans, and holds NaN wherever nothing is to be read (tests/ops/cases).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry, catalogue, pack_arguments
from hk_backend.kernels.masks import ALIBI, CAPPED, PARTS
from hk_backend.ops import PagedKV
from hk_backend.terms.paged_kv import CacheView
from tests.kernels.cover import covered
from tests.ops.cases import Call, Case, make, output_of
from tests.ops.layouts import LAYOUTS
from tests.ops.oracle import Expected, expected_with
from tests.proof.measured import note_error

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
STORED = {**DTYPES, "e4m3": torch.float8_e4m3fn}
SWEPT = {"dtype": ("bf16",)}
WORDS = {2: torch.int16, 4: torch.int32}
UNTOUCHED = {2: 0x7FA5, 4: 0x7FA5A5A5}
"""Words of an untouched element, by its bytes: a signalling NaN of bf16, fp16 and float32."""
SPLIT_LAYOUTS = (
    "ROCM_ATTN: [B,H,D/x,N,x] and [B,H,D,N]",
    "AITER shuffled: [B,H,D/x,N,x] and [B,H,N/x,D,x]",
)
"""Layouts of tests/ops/layouts with 16 bytes of a key, and of a value's channel, together."""
NUMBER_OF_PARTS, TILE_KEYS = 3, 64
"""The number of parts of the keys, for kernels that compute parts. The keys of a tile."""
PADDED = {
    128: ((80, 80), (96, 96), (112, 112), (64, 128), (120, 72), (40, 40), (8, 8), (72, 120)),
    256: ((192, 128), (160, 160), (192, 192), (136, 248), (248, 136), (176, 176)),
}
"""Channels of keys and of values for padded kernels: sizes of models, and edges."""
SOFT_CAP = 30.0
"""The cap of scores, for a kernel with a cap and a case without one."""
Tensors = dict[str, torch.Tensor | None]
ENDLESS = 10_000_000
"""A limit of instructions per wave: many times those of the longest case."""


@dataclass
class Outcome:
    """The results of a launch, and how far they are off.

    `excess`: the largest error over what rounding explains, at most 1 if the kernel is right. It is
    infinite if a NaN is missing or in the wrong place, or if a foreign row was written.
    """

    out: torch.Tensor
    lse: torch.Tensor
    reports: list[_emulator.Report]
    excess: float

    @property
    def report(self) -> _emulator.Report:
        """The emulator's report of the attention kernel."""
        return self.reports[0]

    @property
    def findings(self) -> list[_emulator.Finding]:
        return [finding for report in self.reports for finding in report.findings]


class Launch:
    """The inputs of one case for one kernel of the catalogue; `run` may be repeated."""

    def __init__(self, entry: KernelEntry, case: Case) -> None:
        self.entry = entry
        self._set_call(make(self.fitting(entry, case)))

    @classmethod
    def of(cls, entry: KernelEntry, call: Call) -> Launch:
        """A launch with the operator's arguments `call`, in the kernel's dtype and head size."""
        launch = cls.__new__(cls)
        launch.entry = entry
        launch._set_call(call)
        return launch

    @staticmethod
    def fitting(entry: KernelEntry, case: Case) -> Case:
        """A case for this kernel, made from `case`.

        It has the kernel's dtypes and head size, and is packed or in a cache that the kernel reads.
        Its scores are masked, capped or biased if the kernel does so.
        """
        facts = entry.facts
        head_size, value_size = sizes_for(case, facts)
        return case.but(
            dtype=DTYPES[str(facts["dtype"])],
            kv_dtype=STORED[str(facts["stored"])],
            head_size=head_size,
            value_size=value_size,
            layout=layout_for(case, str(facts["keys"]), head_size == value_size),
            block_size=block_size_for(case.block_size, str(facts["keys"])),
            logits_soft_cap=(case.logits_soft_cap or SOFT_CAP) if facts["mask"] == CAPPED else None,
            alibi=facts["mask"] == ALIBI and case.causal,
        )

    def _set_call(self, call: Call) -> None:
        self.call = call
        self.in_parts = self.entry.facts["mask"] in PARTS
        self.want: Expected = expected_with(call, call["query"].dtype, self.in_parts)
        self.parts = parts_of(call, NUMBER_OF_PARTS)
        self.tensors, self.numbers = arguments(call)

    def run(
        self,
        code_object: bytes | None = None,
        *,
        seed: int = 0,
        checks: bool = True,
        with_lse: bool = True,
        merge: bytes | None = None,
    ) -> Outcome:
        """Launches `code_object`, by default the one that ships. A kernel for parts is followed by
        the kernel that joins them: `merge`, by default the shipped one."""
        query = self.call["query"]
        out = untouched(*output_of(self.call).shape, dtype=query.dtype)
        lse = untouched(query.shape[1], query.shape[0], dtype=torch.float32)
        results: Tensors = {"out": out, "lse": lse if with_lse else None}
        numbers = {
            **strides("out", out, ("token", "head")),
            **strides("lse", lse, ("head", "token")),
        }
        options = {"seed": seed, "checks": checks}
        reports = []
        if self.in_parts:
            sums, partial, own = self._in_parts()
            found: Tensors = {"out": partial, "lse": sums}
            reports += [self._launch(self.entry, code_object, found, own, options)]
            results |= {"partial": partial, "sums": sums}
            numbers["parts"] = self.parts[0]
            if len(query):  # like the device: there is a row to write
                reports += [self._launch(merging(self.entry), merge, results, numbers, options)]
        else:
            numbers |= {"parts": 1, "part_keys": 0, "out_part": 0, "lse_part": 0}
            reports += [self._launch(self.entry, code_object, results, numbers, options)]
        return Outcome(out, lse, reports, self._excess(out, lse if with_lse else None))

    def _in_parts(self) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
        """Tensors for the sums and outputs of the parts, and the numbers that describe them."""
        query = self.call["query"]
        number, keys = self.parts
        partial = untouched(number, *output_of(self.call).shape, dtype=query.dtype)
        sums = untouched(number, 2, query.shape[1], query.shape[0], dtype=torch.float32)
        numbers = {
            **strides("out", partial, ("part", "token", "head")),
            **strides("lse", sums, ("part", "sum", "head", "token")),
            "parts": number,
            "part_keys": keys,
        }
        return sums, partial, numbers

    def _launch(
        self,
        entry: KernelEntry,
        code_object: bytes | None,
        results: Tensors,
        more: Mapping[str, float],
        options: Mapping[str, Any],
    ) -> _emulator.Report:
        code = entry.code_object() if code_object is None else code_object
        lines = entry.line_tables() if code_object is None else b""
        machine = _emulator.Machine(entry.arch)
        kernel = loaded(code, lines).kernel(entry.symbol)
        fields = {field.name for field in entry.arguments.fields}
        numbers = {n: value for n, value in {**self.numbers, **more}.items() if n in fields}
        tensors = {n: tensor for n, tensor in {**self.tensors, **results}.items() if n in fields}
        pointers = {name: _map(machine, name, tensor) for name, tensor in tensors.items()}
        argument = pack_arguments(entry, **pointers, **numbers)
        return machine.launch(
            kernel, list(entry.workgroups(argument)), [entry.block], argument,
            dynamic_lds=entry.dynamic_lds, threads=2, max_instructions=ENDLESS, **options,
        )  # fmt: skip

    def _excess(self, out: torch.Tensor, lse: torch.Tensor | None) -> float:
        owned, want = self.want.owned, self.want
        worst = excess(out[owned], want.out[owned], want.out_bound[owned])
        foreign = [out[~owned]]
        if lse is not None:
            foreign.append(lse[:, ~owned])
            worst = max(worst, excess(lse[:, owned], want.lse[:, owned], want.lse_bound[:, owned]))
        return worst if all(map(is_untouched, foreign)) else math.inf


def kernels(*, by_type: bool = False, **axes: Sequence[Any]) -> Any:
    """Parametrises a proof by the attention kernels and by `axes` (tests/kernels/cover.py).

    Kernels of bf16 stand for those of fp16. These have the same instructions except for the names
    of types. A test of what a type does to numbers takes both: `by_type`.
    """
    return covered("attention_prefill", None if by_type else SWEPT, **axes)


def passes(launch: Launch, seed: int = 0) -> Outcome:
    """Runs `launch` and asserts what must hold of every run."""
    outcome = launch.run(seed=seed)
    assert [finding.message for finding in outcome.findings] == []
    assert outcome.excess <= 1, launch.call
    note_error(outcome.excess)
    return outcome


def merging(entry: KernelEntry) -> KernelEntry:
    """The kernel that joins the results of `entry`, a kernel for parts of the keys."""
    facts = {name: entry.facts[name] for name in ("dtype", "head_size")}
    found = catalogue(entry.arch).select("attention_merge", **facts)
    assert isinstance(found, KernelEntry)
    return found


def parts_of(call: Call, number: int) -> tuple[int, int]:
    """A split of the longest request's keys: the number of parts, and the keys of each. Parts
    consist of whole tiles, and the last one takes the rest."""
    starts = call["key_start_loc"] if "key_start_loc" in call else call["query_start_loc"]
    lengths = call["seq_lens"] if "seq_lens" in call else starts.diff()
    longest = int(lengths.max()) if len(lengths) else 0
    if call["sliding_window"]:  # parts begin at the window of a tile's first row
        longest = min(longest, call["sliding_window"] + TILE_KEYS)
    return number, TILE_KEYS * max(longest // (TILE_KEYS * number), 1)


@lru_cache(maxsize=4)
def loaded(code: bytes, lines: bytes) -> _emulator.CodeObject:
    """The decoded code object, cached: decoding takes as long as a small launch."""
    return _emulator.CodeObject.load(code, lines)


def untouched(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of NaN with bits that no arithmetic makes: any written NaN differs."""
    words = torch.full(shape, UNTOUCHED[dtype.itemsize], dtype=WORDS[dtype.itemsize])
    return words.view(dtype)


def is_untouched(tensor: torch.Tensor) -> bool:
    size = tensor.dtype.itemsize
    return bool((tensor.contiguous().view(WORDS[size]) == UNTOUCHED[size]).all())


def excess(found: torch.Tensor, exact: torch.Tensor, bound: torch.Tensor) -> float:
    """The largest error in units of its bound; infinite for a NaN or infinity on one side alone."""
    if not found.numel():
        return 0.0
    found = found.double()
    same = (found == exact) | (found.isnan() & exact.isnan())
    ratio = torch.where(same, 0.0, (found - exact).abs() / bound)
    return float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max())


def arguments(call: Call) -> tuple[dict[str, torch.Tensor | None], dict[str, float]]:
    """The kernel's pointers and numbers, except those of its results."""
    query, paged = call["query"], call.get("paged_kv")
    starts = call["query_start_loc"]
    tensors: dict[str, torch.Tensor | None] = {"query": query, "query_start_loc": starts}
    numbers: dict[str, float] = strides("query", query, ("token", "head"))
    if paged is None:
        tensors |= {"key": call["key"], "value": call["value"], "seq_lens": None}
        tensors |= {"key_start_loc": call.get("key_start_loc", starts), "block_table": None}
        numbers |= dict.fromkeys(("key_block", "value_block", "block_table_row"), 0)
        numbers |= {"block_size": 0, "num_blocks": 0, "block_reciprocal": 0, "block_rows": 0}
        axes: tuple[str, ...] = ("token", "head")
    else:
        assert isinstance(paged, PagedKV)
        # 8 channels are one piece: keys are whole rows, values are not
        split = paged.key.channel_split < paged.head_size or paged.value.strides[5] != 1
        named = (("key", paged.key), ("value", paged.value))
        tensors |= {name: view.tensor if split else logical(paged, view) for name, view in named}
        tensors |= {"seq_lens": call["seq_lens"], "block_table": call["block_table"]}
        tensors["key_start_loc"] = None
        numbers["block_table_row"] = call["block_table"].stride(0)
        numbers |= {"block_size": paged.block_size, "num_blocks": paged.num_blocks}
        numbers |= blocks_of(paged)
        axes = ("block", "head", "token")
    numbers |= {"key_piece": 0, "value_piece": 0}
    if paged is not None and split:
        numbers |= split_strides(paged)
    else:
        for name in ("key", "value"):
            tensor = tensors[name]
            assert tensor is not None
            numbers |= strides(name, tensor, axes)
            if paged is not None and paged.block_size == 1:  # a block is a row
                numbers[f"{name}_token"] = numbers[f"{name}_block"]
    heads = tensors["key"].shape[1]  # type: ignore[union-attr]
    scale = query.shape[2] ** -0.5 if call["scale"] is None else call["scale"]
    factors = {}
    for name in ("key", "value"):
        factor = call[f"{name[0]}_scale"]
        by_pointer = isinstance(factor, torch.Tensor)
        tensors[f"{name}_scale"] = factor if by_pointer else None
        numbers[f"{name}_scale_head"] = int(by_pointer and len(factor) > 1)
        factors[name] = 1.0 if by_pointer else factor
    tensors |= {name: call[name] for name in ("sinks", "alibi_slopes")}
    return tensors, numbers | {
        "num_requests": len(starts) - 1,
        "num_tokens": len(query),
        "num_heads": query.shape[1],
        "num_kv_heads": heads,
        "group": query.shape[1] // heads,
        "group_reciprocal": math.ceil(2**31 / (query.shape[1] // heads)),
        "head_size": query.shape[2],
        "value_size": output_of(call).shape[2],
        "causal": int(call["causal"]),
        "window": call["sliding_window"] or 2**30,
        "scale": scale * factors["key"],
        "value_factor": factors["value"],
        "soft_cap": call["logits_soft_cap"] or 0.0,
    }


def sizes_for(case: Case, facts: Mapping[str, Any]) -> tuple[int, int]:
    """Sizes of keys and of values: the kernel's, or a pair that a padded kernel computes."""
    size = int(facts["head_size"])
    if not facts["padded"]:
        return size, size
    sizes = PADDED[size]
    return sizes[(case.seed + sum(sum(lengths) for lengths in case.lengths)) % len(sizes)]


def layout_for(case: Case, keys: str, one_size: bool) -> str | None:
    """The case's layout if the kernel reads it, otherwise one that it reads.

    Kernels read pieces of 16 bytes, or whole rows. Where each lane finds its own row, rows of keys
    and rows of values are equally far apart.
    """
    if keys == "packed":
        return None
    split, side_by_side = keys == "split", "one [B,N,H,Dk+Dv]"
    if not one_size and keys in ("tokens", "any_pages"):
        return side_by_side
    fits = case.layout is not None and (one_size or not LAYOUTS[case.layout].one_size)
    if fits and (case.layout in SPLIT_LAYOUTS) == split:
        return case.layout
    if split:
        return SPLIT_LAYOUTS[case.seed % 2]
    return "one [B,H,N,2D]" if one_size else side_by_side


def block_size_for(block_size: int, keys: str) -> int:
    """The block size if the kernel reads it, otherwise one that it reads.

    Kernels read blocks of 1 token, blocks of a multiple of 16, or blocks of any other size.
    """
    if keys == "tokens":
        return 1
    sixteens, rest = divmod(block_size, 16)
    if keys == "any_pages":
        return block_size if rest > 1 else 16 * sixteens - 4 if sixteens else 3
    return 16 * sixteens or 16


def blocks_of(paged: PagedKV) -> dict[str, float]:
    """Numbers of the cache's blocks, derived here by hand: the divisor for the block size, and the
    rows from one block to the next."""
    size = paged.block_size
    if size % 16 == 0:
        return {"block_reciprocal": math.ceil(2**31 / (size / 16)), "block_rows": 0}
    key = paged.key
    rows = key.strides[0] // key.strides[3]
    return {"block_reciprocal": (2**32 - 1) // size, "block_rows": rows if size > 1 else 1}


def split_strides(paged: PagedKV) -> dict[str, float]:
    """Strides of caches in pieces, derived by hand: keys [B, H, D/x, N, x]; values [B, H, D, N] or
    [B, H, N/x, D, x]."""
    key, value = paged.key.tensor, paged.value.tensor
    by_channel = value.dim() == 4
    return {
        "key_block": key.stride(0), "key_head": key.stride(1),
        "key_piece": key.stride(2), "key_token": key.stride(3),
        "value_block": value.stride(0), "value_head": value.stride(1),
        "value_piece": value.stride(2 if by_channel else 3),
        "value_token": 1 if by_channel else value.stride(2) // key.shape[4],
    }  # fmt: skip


def logical(paged: PagedKV, view: CacheView) -> torch.Tensor:
    """A cache's keys or values as `[blocks, heads, block_size, channels]`."""
    block, head, _, token, _, channel = view.strides
    channels = paged.value_size if view is paged.value else paged.head_size
    shape = (paged.num_blocks, paged.num_kv_heads, paged.block_size, channels)
    return view.tensor.as_strided(shape, (block, head, token, channel))


def strides(name: str, tensor: torch.Tensor, axes: tuple[str, ...]) -> dict[str, float]:
    pairs = zip(axes, tensor.stride(), strict=False)
    return {f"{name}_{axis}": stride for axis, stride in pairs}


def _map(machine: _emulator.Machine, name: str, tensor: torch.Tensor | None) -> int | None:
    if tensor is None:
        return None
    span = 0
    if tensor.numel():
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return machine.map(tensor.data_ptr(), span * tensor.element_size(), name)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    view: Callable[[torch.dtype], torch.Tensor] = tensor.contiguous().view
    return view(torch.uint8)
