"""Kernels that compute a given attention, or the reason why there are none.

The same rules apply to a request, before there are tensors, and to a call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from hk_backend.devices.hip.attention_mask import Masking, Refused
from hk_backend.devices.hip.cache_form import BLOCK_TOKENS, VALID, form_of, form_of_cache
from hk_backend.devices.hip.call import bad
from hk_backend.kernels import Catalogue, Fact, Family, NoKernel
from hk_backend.kernels.masks import NO_MASK, WINDOW
from hk_backend.kernels.row_sources import PACKED, SPLIT
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.requests import AttentionRequest
from hk_backend.terms.verdict import Verdict, refused

PREFILL, DECODE = "attention_prefill", "attention_decode"
"""Operators that compute attention."""
DTYPES = {torch.bfloat16: "bf16", torch.float16: "f16"}
STORED = {**DTYPES, torch.float8_e4m3fn: "e4m3"}
"""Fact `stored` by the dtype of keys and values."""


def find(request: AttentionRequest, kernels: Catalogue) -> Family | Verdict:
    """The kernels that compute `request`, or one line that says why there are none."""
    arch = kernels.arch
    if request.dtype not in DTYPES:
        return refused(f"dtype {request.dtype}: the {arch} kernels compute bfloat16 and float16")
    stored = request.kv_dtype or request.dtype
    if stored not in STORED:
        return refused(f"keys and values in {stored}: the {arch} kernels read {_listed(STORED)}")
    keys = _keys(request)
    if keys is None:
        return refused(f"cache with {_layouts(request)}: the {arch} kernels read {VALID}")
    masking = Masking.of_request(request)
    sizes = request.head_size, request.value_size
    wanted = Wanted(request.operator, request.dtype, stored, *sizes, keys, masking)
    found = wanted.family(kernels)
    if isinstance(found, NoKernel):
        return refused(wanted.why_none(found, kernels))
    if refusal := masking.refusal():
        return refused(f"{refusal}: not in the {arch} kernels")
    if keys == SPLIT and request.block_size is not None and request.block_size % BLOCK_TOKENS:
        return refused(
            f"block_size {request.block_size}: the {arch} kernels read multiples of {BLOCK_TOKENS} "
            f"of a cache with {_layouts(request)}"
        )
    return found


def kernels_of(of: AttentionArguments, kernels: Catalogue) -> Family:
    """The kernels that compute a call.

    Raises:
        ValueError: there are none. Names the argument, its value and what would be valid.
    """
    query, key, size = of.query, of.stored()[0], of.query.shape[2]
    if query.dtype not in DTYPES:
        bad("query", query.dtype, "bfloat16 or float16")
    if key.dtype not in STORED:
        bad("key", key.dtype, _listed(STORED))
    keys = PACKED if of.paged_kv is None else form_of_cache(of.paged_kv)
    masking = Masking.of_call(of)
    wanted = Wanted(of.operator, query.dtype, key.dtype, size, of.value_size, keys, masking)
    found = wanted.family(kernels)
    refusal = masking.refusal()
    if isinstance(found, NoKernel):
        if wanted.value_size != size:
            name = "value" if of.paged_kv is None else "paged_kv"
            bad(name, wanted.sizes(found), f"values of {size} channels, as keys have")
        if found.fact == "stored":
            bad("key", f"{keys} in {key.dtype}", _listed(found.valid))
        if found.fact == "head_size":
            bad("query", f"head_size {size}", _sizes(found))
        if found.fact != "mask":
            bad("key" if of.paged_kv is None else "paged_kv", keys, _listed(found.valid))
        refusal = refusal or wanted.missing(kernels)
    if refusal is not None:
        bad(refusal.argument, f"a call with {refusal}", refusal.valid)
    assert not isinstance(found, NoKernel)
    for name in ("k_scale", "v_scale"):
        if key.dtype == query.dtype and isinstance(getattr(of, name), torch.Tensor):
            bad(name, f"a tensor for keys and values in {key.dtype}", "a number")
    return found


@dataclass(frozen=True)
class Wanted:
    """The attention that a kernel has to compute.

    Args:
        operator: `PREFILL` or `DECODE`.
        dtype: dtype of queries, one of `DTYPES`.
        stored: dtype of keys and values, one of `STORED`.
        head_size: channels of a key.
        value_size: channels of a value.
        keys: layout of keys and values (hk_backend/kernels/row_sources.py).
        masking: keys that rows see, and changes to the scores.
    """

    operator: str
    dtype: torch.dtype
    stored: torch.dtype
    head_size: int
    value_size: int
    keys: str
    masking: Masking

    @property
    def mask(self) -> str:
        """The kernels' fact `mask`. All decode kernels have a window, which may be endless."""
        mask = self.masking.mask
        return WINDOW if self.operator == DECODE and mask == NO_MASK else mask

    def family(self, kernels: Catalogue) -> Family | NoKernel:
        """The kernels of this head size, or padded kernels of the next larger size that exists.
        Padded kernels also allow another size of values."""
        operator, mask = self.operator, self.mask
        own: NoKernel | None = None
        if self.value_size == self.head_size:
            found = kernels.alternatives(operator, padded=False, **self.facts(), mask=mask)
            if not isinstance(found, NoKernel) or found.fact != "head_size":
                return found
            own = found
        most = max(self.head_size, self.value_size)
        size = min((size for size in self.padded_sizes(kernels) if size >= most), default=most)
        of = {**self.facts(), "head_size": size}
        padded = kernels.alternatives(operator, padded=True, **of, mask=mask)
        if own is None or not isinstance(padded, NoKernel) or padded.fact == "mask":
            return padded
        return own

    def facts(self) -> dict[str, Fact]:
        """Facts of kernels for this attention, except the mask."""
        return {
            "dtype": DTYPES[self.dtype],
            "keys": self.keys,
            "stored": STORED[self.stored],
            "head_size": self.head_size,
        }

    def missing(self, kernels: Catalogue) -> Refused:
        """The part of the mask that no kernel computes: see `Masking.missing`."""
        return self.masking.missing(kernels.families[self.operator], self.stored, self.facts())

    def sizes(self, found: NoKernel) -> str:
        """Text for the sizes of keys and values, if values of another size have no kernels."""
        masked = f", with {self.masking.argument}" if found.fact == "mask" else ""
        which = f"{self.keys} in {self.stored}{masked}"
        return f"values of {self.value_size} channels with keys of {self.head_size}, {which}"

    def why_none(self, found: NoKernel, kernels: Catalogue) -> str:
        """Reason why no kernel was found, as one line for a user."""
        arch, where = kernels.arch, f"{self.keys} keys and values in {self.stored}"
        if self.value_size != self.head_size:
            return f"{self.sizes(found)}: not in the {arch} kernels"
        if found.fact == "stored":
            return f"{where}: the {arch} kernels read {_listed(found.valid)}"
        if found.fact == "mask":
            refusal = self.masking.refusal() or self.missing(kernels)
            return f"{refusal}: not in the {arch} kernels"
        of = f" of {where}" if self._serves(kernels) else ""
        return f"head_size {self.head_size}{of}: the {arch} kernels have {_sizes(found)}"

    def padded_sizes(self, kernels: Catalogue) -> set[int]:
        """Head sizes up to which padded kernels serve any multiple of 8."""
        family = kernels.families.get(self.operator, ())
        return {int(entry.facts["head_size"]) for entry in family if entry.facts["padded"]}

    def _serves(self, kernels: Catalogue) -> bool:
        """Whether a kernel exists for the head size, for some layout of keys and values."""
        family = kernels.families.get(self.operator, ())
        own = {entry.facts["head_size"] for entry in family}
        most = max(self.padded_sizes(kernels), default=0)
        return self.head_size in own or self.head_size <= most


def _keys(request: AttentionRequest) -> str | None:
    """Layout of a request's keys and values; None if no kernel reads it."""
    if not request.paged:
        return PACKED
    layouts = request.cache_layouts or ("B N H D", "B N H D")
    return form_of(layouts, request.block_size or BLOCK_TOKENS)


def _layouts(request: AttentionRequest) -> str:
    keys, values = request.cache_layouts or ("", "")
    return f'keys as "{keys}" and values as "{values}"'


def _sizes(found: NoKernel) -> str:
    """Text with the head sizes for which there are kernels."""
    return _listed(found.valid if found.fact == "head_size" else ()) or "no size"


def _listed(valid: Iterable[object]) -> str:
    names = [str(each) for each in valid]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 2 else names)
