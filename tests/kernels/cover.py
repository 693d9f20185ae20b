"""Which cases the kernels are tested with: pairwise covers, another for each commit.

    @covered("attention_prefill", heads=HEADS, causal=(True, False))
    def test_every_ratio_of_heads(entry, heads, causal): ...

runs the test for so many kernels and values that each pair of values of two axes occurs; the facts
of the catalogue (dtype, head size, ..., and the arch) are axes, too. So a test costs as much as its
two longest axes, however many kernels there are. The rest of the product is marked slow, or a part
of it, the sweep.

Which cover is drawn from the commit, or HK_TEST_SEED; the session's header says which. Everything
drawn is in the test's name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from allpairspy import AllPairs

from hk_backend.kernels import KernelEntry, arches, catalogue
from tests.seed import draw

Row = tuple[Any, ...]


def pairwise(name: str, axes: Sequence[Sequence[Any]], known: Sequence[Row] = ()) -> list[Row]:
    """Rows that have each pair of values of two axes; with `known`, of those that begin as one of
    these does."""
    generator = draw(name)
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
    """Rows with the pairs that AllPairs gives up where few beginnings have them."""
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
    name: str, operator: str, **axes: Sequence[Any]
) -> list[tuple[KernelEntry, dict[str, Any]]]:
    """A kernel and a value of each axis, pairwise; an axis named as a fact restricts it."""
    wanted = {fact: axes[fact] for fact in axes if fact in family(operator)[0].facts}
    entries = {facts_of(e): e for e in family(operator) if has(e, wanted)}
    facts = [sorted(set(values)) for values in zip(*entries, strict=True)]
    others = {axis: values for axis, values in axes.items() if axis not in wanted}
    rows = pairwise(name, [*facts, *others.values()], list(entries))
    return [
        (entries[row[: len(facts)]], dict(zip(others, row[len(facts) :], strict=True)))
        for row in rows
    ]


def covered(
    operator: str, swept: Mapping[str, Sequence[Any]] | None = None, **axes: Sequence[Any]
) -> Any:
    """Parametrise a test by `entry` and the axes that are no facts: see above. `swept`: values of
    facts of which alone the sweep is."""

    def decorate(test: Any) -> Any:
        chosen = [(e, tuple(row.values())) for e, row in cover(test.__name__, operator, **axes)]
        facts = family(operator)[0].facts
        wanted = {axis: values for axis, values in axes.items() if axis in facts}
        others = {axis: values for axis, values in axes.items() if axis not in facts}
        rest = [
            (entry, row)
            for entry in family(operator)
            for row in itertools.product(*others.values())
            if has(entry, wanted | dict(swept or {})) and (entry, row) not in chosen
        ]
        names = ("entry", *others)
        return pytest.mark.parametrize(names, [*params(chosen), *params(rest, pytest.mark.slow)])(
            test
        )

    return decorate


def of_each_kind(name: str, cases: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
    """Of each kind one case, drawn; the others are marked slow. `cases`: a test's arguments by the
    case's name, which is "kind" or "kind: what of it"."""
    kinds: dict[str, list[str]] = {}
    for case in cases:
        kinds.setdefault(case.partition(":")[0], []).append(case)
    generator = draw(name)
    drawn = {generator.choice(of_kind) for of_kind in kinds.values()}
    for case, values in cases.items():
        yield pytest.param(*values, id=case, marks=[] if case in drawn else pytest.mark.slow)


def params(rows: Sequence[tuple[KernelEntry, Row]], *marks: Any) -> Iterator[Any]:
    for entry, row in rows:
        names = (entry.name, entry.arch, *map(str, row))
        yield pytest.param(entry, *row, marks=marks, id="-".join(names))


def facts_of(entry: KernelEntry) -> Row:
    """Also the rows of its tile, in which alternatives differ."""
    return (entry.arch, *entry.facts.values(), entry.tile.rows)


def has(entry: KernelEntry, facts: dict[str, Sequence[Any]]) -> bool:
    return all(entry.facts[fact] in values for fact, values in facts.items())
