"""Mutants of the decode kernels, and which of them survive (test_attention_decode_mutants.py).

python -m tests.kernels.attention_decode_mutants attention_decode_bf16_d128_paged_r64
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from hk_backend.kernels import KernelEntry, catalogue
from tests.kernels.attention_decode_launch import DecodeLaunch
from tests.kernels.mutants import Mutant, Verdict, code_of, judge, mutants, survivors
from tests.ops.cases import Case

CASES = (
    # requests that one workgroup has, and that several share, and rows in all waves of some
    (Case(lengths=((1, 900), (6, 70), (0, 0), (1, 33)), num_heads=16, num_kv_heads=2), 3),
    # more tiles than stages of the rings, joined by one of many
    (Case(lengths=((1, 1500),), num_heads=4, num_kv_heads=1), 5),
    # a tree of two levels
    (Case(lengths=((1, 12000),), num_heads=4, num_kv_heads=1), 40),
    # no key at all
    (Case(lengths=((1, 0), (2, 40)), num_heads=2), 1),
    # windows that begin within tiles, with sinks
    (Case(lengths=((3, 1400), (1, 80)), num_heads=2, sliding_window=700, sinks=True), 2),
    # more requests than lanes
    (Case(lengths=((1, 9),) * 70, num_heads=2), 2),
    # two tiles that some rows see in part, behind more tiles than stages
    (Case(lengths=((16, 582), (1, 80)), num_heads=2), 1),
    # waves whose last tile is before that of others
    (Case(lengths=((16, 584),), num_heads=8, num_kv_heads=2), 1),
    # sinks of rows that several workgroups share
    (Case(lengths=((2, 1300),), num_heads=2, sinks=True), 3),
)
SCALED = Case(((2, 400), (1, 3)), 2, 2, k_scale="per head", v_scale="per head")


def judged(entry: KernelEntry) -> Iterator[Verdict]:
    """The verdict on every mutant. Raises `ValueError` if the unchanged kernel does not pass."""
    scaled = [(SCALED, 2)] if entry.facts["stored"] != entry.facts["dtype"] else []
    launches = [DecodeLaunch(entry, case, shares) for case, shares in (*CASES, *scaled)]
    code_object = entry.code_object()
    unchanged = judge(launches, code_object, Mutant(0, (), "none"))
    if unchanged.caught_by:
        raise ValueError(f"{entry.name}: {unchanged.caught_by} without any change")
    words, offset, begin, end = code_of(entry)
    for mutant in mutants(words, entry.arch, begin, end):
        yield judge(launches, mutant.apply(code_object, offset), mutant)


def main(names: Sequence[str]) -> None:
    """Prints each survivor."""
    for name in names:
        verdicts = list(judged(catalogue("gfx950").kernel(name)))
        left = survivors(verdicts)
        print(f"{name}: {len(verdicts)} mutants, {len(left)} survived")
        for verdict in left:
            print(f"  {verdict}")


if __name__ == "__main__":
    main(sys.argv[1:])
