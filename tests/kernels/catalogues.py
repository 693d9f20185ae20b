"""Shipped kernels by their facts, and catalogues with other kernels in their places."""

from __future__ import annotations

from dataclasses import replace

from hk_backend.kernels import Catalogue, Fact, Family, KernelEntry, NoKernel, catalogue
from hk_backend.kernels.masks import NO_MASK, WINDOW

MASKS = {"attention_prefill": NO_MASK, "attention_decode": WINDOW}
"""Mask of the kernels that a plain layer takes: those of decode have a window in any case."""


def selected(operator: str, **facts: Fact) -> KernelEntry:
    """The kernel for gfx950; of alternatives the one with the largest tile."""
    return _alternatives(operator, **facts)[0]


def serving_few(operator: str, **facts: Fact) -> KernelEntry:
    """The kernel for gfx950 that a small launch takes: the one with the smallest tile."""
    return _alternatives(operator, **facts)[-1]


def _alternatives(operator: str, **facts: Fact) -> Family:
    """The kernels for gfx950 with these facts, the largest tile first.

    For attention, facts that are not given have defaults: keys and values in the kernel's own
    dtype, neither window nor sink, and one head size.
    """
    if operator in MASKS:
        facts = {"stored": facts["dtype"], "mask": MASKS[operator], "padded": False, **facts}
    found = catalogue("gfx950").alternatives(operator, **facts)
    assert not isinstance(found, NoKernel), found
    return found


def with_kernels(known: Catalogue, *entries: KernelEntry) -> Catalogue:
    """A copy of the catalogue: `entries` replace the kernels of the same names, or are added."""
    families = dict(known.families)
    for entry in entries:
        others = families.get(entry.operator, ())
        kept = tuple(entry if other.name == entry.name else other for other in others)
        families[entry.operator] = kept if entry in kept else (*kept, entry)
    return replace(known, families=families)
