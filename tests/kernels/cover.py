"""Cases that prove kernels: pairwise covers, the same in every session.

    @covered("attention_prefill", heads=HEADS, causal=(True, False))
    def test_every_ratio_of_heads(entry, heads, causal): ...

runs the test so often that each pair of values of any two axes occurs. The kernels are an axis, and
so are the catalogue's facts: dtype, head size, arch and others. Each kernel has at least one case.
So a test costs as much as its kernels and its longest axis, not as their product.

The tests are proofs (tests/proof): `make prove` runs and records them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from allpairspy import AllPairs

from hk_backend.kernels import KernelEntry, arches, catalogue
from tests.seed import draw, fixed

Row = tuple[Any, ...]


def pairwise(name: str, axes: Sequence[Sequence[Any]], known: Sequence[Row] = ()) -> list[Row]:
    """Rows that cover each pair of values of two axes. With `known`, each row begins like one of
    these."""
    generator = fixed(name)
    shuffled = [generator.sample(list(axis), len(axis)) for axis in axes]

    def begins(row: Sequence[Any]) -> bool:
        return not known or any(tuple(row[: len(one)]) == one[: len(row)] for one in known)

    rows = [tuple(row) for row in AllPairs(shuffled, filter_func=begins)]
    return (
        rows if not known else [*rows, *_left_out(rows, generator.sample(known, len(known)), axes)]
    )


def _left_out(
    rows: Sequence[Row], known: Sequence[Row], axes: Sequence[Sequence[Any]]
) -> Iterator[Row]:
    """Rows for the pairs that AllPairs misses if only few of `known` have them."""
    seen = {pair for row in rows for pair in itertools.combinations(enumerate(row), 2)}
    free = axes[len(known[0]) :]
    for one in known:
        for turn in range(max(map(len, free), default=1)):
            row = (*one, *(axis[turn % len(axis)] for axis in free))
            pairs = set(itertools.combinations(enumerate(row), 2))
            if pairs - seen:
                seen |= pairs
                yield row


def family(operator: str) -> list[KernelEntry]:
    """The operator's kernels, of every arch."""
    return [e for arch in arches() for e in catalogue(arch).families.get(operator, ())]


def cover(
    name: str, operator: str, only: Mapping[str, Sequence[Any]] | None = None, **axes: Sequence[Any]
) -> list[tuple[KernelEntry, dict[str, Any]]]:
    """Pairs of a kernel and the values of the axes, pairwise, with each kernel at least once.

    One kernel stands for all that differ only in the stages of their loop.

    Args:
        only: values of facts: kernels with others take no part.
        axes: values of each axis; one that is named like a fact restricts it, too.
    """
    facts = family(operator)[0].facts
    wanted = {axis: values for axis, values in axes.items() if axis in facts}
    others = {axis: values for axis, values in axes.items() if axis not in facts}
    entries = {facts_of(e): e for e in family(operator) if has(e, {**wanted, **(only or {})})}
    values = [sorted(set(each)) for each in zip(*entries, strict=True)]
    rows = pairwise(name, [*values, *others.values()], list(entries))
    found = [
        (entries[row[: len(values)]], dict(zip(others, row[len(values) :], strict=True)))
        for row in rows
    ]
    covered_ones = {entry for entry, _ in found}
    for number, entry in enumerate(e for e in entries.values() if e not in covered_ones):
        found.append((entry, {axis: each[number % len(each)] for axis, each in others.items()}))
    return found


def covered(
    operator: str, only: Mapping[str, Sequence[Any]] | None = None, **axes: Sequence[Any]
) -> Any:
    """Parametrises a proof by `entry` and the axes that are no facts: see `cover`.

    With `only` its records are those of the kernels' twins of other types, too.
    """

    def decorate(test: Any) -> Any:
        rows = [
            (entry, tuple(row.values()))
            for entry, row in cover(test.__name__, operator, only, **axes)
        ]
        names = ("entry", *(axis for axis in axes if axis not in family(operator)[0].facts))
        marked = pytest.mark.proof(with_types=not only)(test)
        return pytest.mark.parametrize(names, list(params(rows)))(marked)

    return decorate


def proved(entries: Sequence[KernelEntry], *, with_types: bool = True) -> Any:
    """Parametrises a proof by `entry`, each of these. Without types, its records also hold for the
    kernels' twins in the other type."""

    def decorate(test: Any) -> Any:
        marked = pytest.mark.proof(with_types=with_types)(test)
        return pytest.mark.parametrize("entry", entries, ids=lambda entry: entry.name)(marked)

    return decorate


def of_some_kinds(name: str, number: int, cases: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Every case, all of them marked slow except `number` that are drawn, each of another kind.

    Args:
        cases: a test's arguments by the case's name, which is "kind" or "kind: details".
    """
    kinds: dict[str, list[str]] = {}
    for case in cases:
        kinds.setdefault(case.partition(":")[0], []).append(case)
    generator = draw(name)
    drawn = {generator.choice(kinds[kind]) for kind in generator.sample(list(kinds), number)}
    return [
        pytest.param(*values, id=case, marks=[] if case in drawn else pytest.mark.slow)
        for case, values in cases.items()
    ]


def params(rows: Sequence[tuple[KernelEntry, Row]]) -> Iterator[Any]:
    for entry, row in rows:
        names = (entry.name, entry.arch, *map(str, row))
        yield pytest.param(entry, *row, id="-".join(names))


def facts_of(entry: KernelEntry) -> Row:
    """A kernel's facts and the sizes of its tile, in which alternatives differ."""
    tile = entry.tile
    return (entry.arch, *entry.facts.values(), tile.rows, tile.columns, tile.depth)


def has(entry: KernelEntry, facts: dict[str, Sequence[Any]]) -> bool:
    return all(entry.facts[fact] in values for fact, values in facts.items())
