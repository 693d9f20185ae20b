"""What the suite would notice: every mutant of the attention kernels is caught.

A survivor is either a wait that the kernel does not need (then it goes) or something that the
emulator or the cases do not see (then they learn to).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.kernels.masks import ALIBI, CAPPED, PART, WINDOW
from hk_backend.kernels.toolchain.compiler import Toolchain
from tests.kernels import mutants, source_mutants
from tests.kernels.catalogues import selected
from tests.kernels.cover import family, of_some_kinds, proved
from tests.kernels.source_mutants import SourceMutant
from tests.proof.kernel_digest import instructions

PACKED, PAGED, SPLIT, TOKENS, ANY_PAGES, TURNS = (
    selected("attention_prefill", dtype="bf16", head_size=head_size, keys=keys)
    for head_size, keys in (
        (64, "packed"),
        (64, "paged"),
        (64, "split"),
        (64, "tokens"),
        (64, "any_pages"),
        (128, "packed"),
    )
)
PARTS = catalogue("gfx950").kernel("attention_prefill_bf16_d128_paged_r128")
WINDOWED, LONE, CODES, COLUMNS, LANE_CODES = (
    selected("attention_prefill", dtype="bf16", head_size=64, keys=keys, stored=stored, mask=WINDOW)
    for keys, stored in (
        ("paged", "bf16"),
        ("any_pages", "bf16"),
        ("paged", "e4m3"),
        ("split", "e4m3"),
        ("tokens", "e4m3"),
    )
)
HALVES = catalogue("gfx950").kernel("attention_prefill_bf16_d128_split_window_r128")
WIDE, WIDE_CODES = (
    selected("attention_prefill", dtype="bf16", head_size=256, keys="paged", stored=stored)
    for stored in ("bf16", "e4m3")
)
PADDED = selected("attention_prefill", dtype="bf16", head_size=128, keys="packed", padded=True)
SHARED = selected("attention_prefill", dtype="bf16", head_size=64, keys="paged", mask=PART)
SHARED_WINDOW = catalogue("gfx950").kernel("attention_prefill_bf16_d128_paged_window_part")
CAPS, SLOPES = (
    selected("attention_prefill", dtype="bf16", head_size=64, keys="paged", mask=mask)
    for mask in (CAPPED, ALIBI)
)
JUDGED = [
    [PACKED, PAGED, SPLIT, TOKENS, ANY_PAGES, TURNS, PARTS],
    [WINDOWED, LONE, HALVES],
    [SHARED, SHARED_WINDOW],
    [CAPS],
    [SLOPES],
    [CODES, COLUMNS, LANE_CODES],
    [WIDE],
    [WIDE_CODES],
    [PADDED],
]
"""By source: of the template's kernels those whose mutants every run judges."""
IN_BF16 = [entry for entry in family("attention_prefill") if entry.facts["dtype"] == "bf16"]
"""The others are these, but for the dtype of an instruction (a test below)."""
ONE_COPY = "s_waitcnt vmcnt(12): vmcnt 12 -> 13"
STRICTER = {
    # Where 16 bytes of a value's channel lie together, waves without work wait for all copies of a
    # tile of values, and all waves of split_r64: the last one is of channels that nobody reads
    # before the next barrier. Elsewhere each copy has some of all channels.
    "d256_split": (ONE_COPY,),
    "d256_split_window": (ONE_COPY,),
    "d256_split_capped": (ONE_COPY,),
    "d256_split_part": (ONE_COPY,),
    "up_to_d256_split": (ONE_COPY,),
    "up_to_d256_split_window": (ONE_COPY,),
    "d128_split_r64": ("s_waitcnt vmcnt(0): vmcnt 0 -> 1", *4 * (ONE_COPY,)),
    # A sink is loaded before the loop and waited for at once; where waves share rows, what they
    # give to each other is waited for after it, and would do.
    **dict.fromkeys(
        (
            "d128_packed_window_r128",
            "d128_paged_window_r128",
            "d128_tokens_window_r128",
            "d128_paged_e4m3_window_r128",
            "d128_split_e4m3_window_r128",
            "d128_tokens_e4m3_window_r128",
        ),
        tuple(f"s_waitcnt lgkmcnt(0): lgkmcnt 0 -> {weaker}" for weaker in ("1", "dropped")),
    ),
}
"""Waits that survive, by kernel: they wait for more than is needed there."""
DRAWN = 4
"""Mutants of the source that a run judges."""
FEWEST = 80
"""Waits and barriers of a kernel, changed one at a time; fewer would mean that they were missed."""


@proved(IN_BF16, with_types=False)
def test_every_wait_and_every_barrier_is_needed(entry: KernelEntry) -> None:
    verdicts = list(mutants.run(entry))
    assert len(verdicts) >= FEWEST
    changes = tuple(verdict.mutant.change for verdict in mutants.survivors(verdicts))
    name = entry.name.removeprefix("attention_prefill_bf16_")
    assert changes == STRICTER.get(name, ()), mutants.survivors(verdicts)


def test_in_fp16_it_is_the_same() -> None:
    """Instruction for instruction, but for the names that say bf16: what the mutants of one show,
    they show of both."""
    assert [entry.name for entry in IN_BF16 if not is_its_twin(entry)] == []


def is_its_twin(entry: KernelEntry) -> bool:
    twin = catalogue(entry.arch).kernel(entry.name.replace("_bf16_", "_f16_"))
    own = tuple(line.replace("bf16", "f16") for line in instructions(entry))
    return instructions(twin) == own


def judged(
    mutant: SourceMutant | None, entries: list[KernelEntry], folder: Path, tools: Toolchain
) -> dict[str, str | None]:
    """How the mutant was caught, by the name of each kernel, all of one source."""
    code_object = source_mutants.compile_mutant(mutant, folder, tools, entries)
    return {entry.name: source_mutants.caught_by(entry, code_object) for entry in entries}


@pytest.mark.parametrize(
    "entries", of_some_kinds("unchanged", 1, {each[0].path.stem: [each] for each in JUDGED})
)
def test_the_unchanged_source_passes(
    entries: list[KernelEntry], tmp_path: Path, tools: Toolchain
) -> None:
    assert set(judged(None, entries, tmp_path, tools).values()) == {None}


def test_what_a_mutant_changes_is_there() -> None:
    for mutant in source_mutants.MUTANTS:
        source_mutants.changed(mutant)


@pytest.mark.parametrize(
    "mutant", of_some_kinds("attention", DRAWN, {m.name: [m] for m in source_mutants.MUTANTS})
)
def test_mutants_of_the_source(mutant: SourceMutant, tmp_path: Path, tools: Toolchain) -> None:
    verdicts = judged(mutant, concerned(mutant), tmp_path, tools)
    assert None not in verdicts.values(), verdicts


def concerned(mutant: SourceMutant) -> list[KernelEntry]:
    """Pages are of the paged kernels alone; lanes, of those where each finds its own rows; pieces,
    of those of split caches; a packed tensor's own end, of the packed ones; turns, of those with
    two waves of a workgroup on a SIMD; parts of the keys, of those whose waves share rows;
    windows and sinks, of those that have them, a lone tile of theirs, of those whose copies have
    no end, halves of it, of those whose waves share rows, too, and codes cleared before windows,
    of those in FP8; shared keys, of those for parts, and parts of a window, of those of windows;
    which head a row of one head is of, of windows; wide rows and codes, of those for 256
    channels; what is padded, of those for several head sizes; caps and slopes, of those that
    have them."""
    of = {
        "parts": [PARTS],
        "join": [PARTS],
        "window": [WINDOWED],
        "shared keys": [SHARED],
        "parts of a window": [SHARED_WINDOW],
        "sinks": [WINDOWED],
        "heads: dealt in turn": [WINDOWED],
        "heads: some twice": [WINDOWED],
        "capped": [CAPS],
        "alibi": [SLOPES],
        "lone tile": [LONE],
        "halves": [HALVES],
        "codes": [CODES],
        "columns": [COLUMNS],
        "lane codes": [LANE_CODES],
        "pieces": [SPLIT],
        "pages": [PAGED],
        "lanes": [TOKENS, ANY_PAGES],
        "turns": [TURNS],
        "wide rows": [WIDE],
        "wide codes": [WIDE_CODES],
        "padded": [PADDED],
        "descriptor: no end": [PACKED],
    }
    kind = mutant.name.partition(":")[0]
    return of.get(mutant.name) or of.get(kind) or [PACKED, PAGED]
