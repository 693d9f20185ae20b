"""Mutants of a code object: copies with one change that should break the kernel.

Every wait is weakened by one and dropped. Every barrier, release and acquire is removed. The
prologue's barrier is moved before its wait.

Mutants are made from the machine words themselves, so that none is forgotten. A mutant is caught if
the emulator reports a finding or the result is wrong, in any of the cases and seeds.

    python -m tests.kernels.mutants attention_prefill_bf16_d128_paged
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry, catalogue, masks
from hk_backend.lab.toolchain.elf import Elf
from tests.kernels.attention_launch import Launch
from tests.kernels.outstanding import most_outstanding
from tests.ops.cases import Case

# SOPP: 0xbf8 above the opcode; s_waitcnt is opcode 12, s_barrier 10, s_setprio 15, s_nop 0
# (CDNA3 ISA, 12.1.5).
WAITCNT, BARRIER, PRIORITY, NOP = 0xBF8C, 0xBF8A, 0xBF8F, 0xBF80
CACHES = ("buffer_wbl2", "buffer_inv")  # instructions of 2 words


@dataclass(frozen=True)
class Counter:
    """A field of s_waitcnt's 16 bits: (shift, width) of its parts, from the low bits up."""

    name: str
    parts: tuple[tuple[int, int], ...]

    @property
    def unlimited(self) -> int:
        return (1 << sum(width for _, width in self.parts)) - 1

    def get(self, field: int) -> int:
        value = at = 0
        for shift, width in self.parts:
            value |= (field >> shift & (1 << width) - 1) << at
            at += width
        return value

    def put(self, field: int, value: int) -> int:
        for shift, width in self.parts:
            mask = (1 << width) - 1
            field = field & ~(mask << shift) | (value & mask) << shift
            value >>= width
        return field


COUNTERS = (Counter("vmcnt", ((0, 4), (14, 2))), Counter("lgkmcnt", ((8, 4),)))


@dataclass(frozen=True)
class Mutant:
    """A change of words in .text, by their byte offset there. `pc`: the offset of the changed
    instruction."""

    pc: int
    words: tuple[tuple[int, int], ...]
    change: str

    def apply(self, code_object: bytes, text_offset: int) -> bytes:
        changed = bytearray(code_object)
        for pc, word in self.words:
            struct.pack_into("<I", changed, text_offset + pc, word)
        return bytes(changed)

    def __str__(self) -> str:
        return f"{self.pc:#x}: {self.change}"


def mutants(text: bytes, arch: str, begin: int, end: int) -> Iterator[Mutant]:
    """The mutants of the instructions from byte `begin` to `end` of a .text section.

    The first pair of wait and barrier publishes the first tiles: it alone is also reversed. A
    steady loop waits long before it reads, with more barriers in between. No mutant is made of a
    wait if no path reaches it with more outstanding operations than it allows
    (tests/kernels/outstanding.py).
    """
    outstanding = most_outstanding(text, arch, begin, end)
    wait: tuple[int, int] | None = None  # the last one, if a barrier may follow at once
    reversed_pair = False
    for place, instruction in _emulator.disassemble(text[begin:end], arch):
        pc = begin + place
        (word,) = struct.unpack_from("<I", text, pc)
        if instruction.startswith(CACHES):
            yield Mutant(pc, ((pc, NOP << 16), (pc + 4, NOP << 16)), f"{instruction} removed")
        if word >> 16 == BARRIER:
            yield Mutant(pc, ((pc, NOP << 16),), "s_barrier removed")
            if wait is not None and not reversed_pair:
                reversed_pair = True
                yield Mutant(pc, ((wait[0], word), (pc, wait[1])), "s_barrier before its wait")
        if word >> 16 == WAITCNT:
            wait = pc, word
        elif word >> 16 not in (PRIORITY, NOP):
            wait = None
        if word >> 16 == WAITCNT:
            for counter in COUNTERS:
                value = counter.get(word & 0xFFFF)
                if pc in outstanding and outstanding[pc][counter.name] <= value:
                    continue
                for weaker in sorted({value + 1, counter.unlimited}):
                    if value < weaker <= counter.unlimited:
                        field = counter.put(word & 0xFFFF, weaker)
                        left = "dropped" if weaker == counter.unlimited else f"{weaker}"
                        change = f"{instruction}: {counter.name} {value} -> {left}"
                        yield Mutant(pc, ((pc, WAITCNT << 16 | field),), change)


@dataclass(frozen=True)
class Verdict:
    """The way in which a mutant was caught: the finding's check or "wrong result"; None if it
    survived.

    `reached`: whether a survivor's instruction was executed at all.
    """

    mutant: Mutant
    caught_by: str | None
    reached: bool = True

    def __str__(self) -> str:
        survived = "SURVIVED" if self.reached else "SURVIVED: was never reached"
        return f"{self.mutant}: {self.caught_by or survived}"


def survivors(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.caught_by is None]


CASES = (
    # a diagonal and a tail inside a tile; whole tiles before it; all waves but one without work
    Case(lengths=((70, 330), (9, 500))),
    # more whole tiles than stages of the ring, so that every stage is used again
    Case(lengths=((40, 1000),), causal=False, magnitude=4.0),
    # all waves at work, and the first long done while the last still reads
    Case(lengths=((256, 600),), num_heads=1, scale=-0.1),
    # no key at all: nothing but the queries is copied, and the wave ends
    Case(lengths=((3, 0),), num_heads=1),
    # more requests than lanes: they are searched in steps
    Case(lengths=((1, 2),) * 66, num_heads=1),
)
SCALED = tuple(
    Case((lengths,), num_heads=2, num_kv_heads=2, k_scale="per head", v_scale="per head")
    for lengths in ((20, 90), (3, 0))
)
"""Cases of FP8 caches, in which the kernel loads the scales."""
WINDOWED = (
    # windows that begin within tiles, past the first ones and at the first key
    Case(lengths=((200, 500), (9, 80)), sliding_window=100, sinks=True),
    # the first tile is the last
    Case(lengths=((5, 100),), num_heads=1, sliding_window=20),
    # no key, but a sink: nothing on the way waits for its load
    Case(lengths=((3, 0),), num_heads=1, sliding_window=20, sinks=True),
)
"""Cases of kernels with windows and sinks."""
LONG = (
    # parts with as many whole tiles as the rings have stages, and more
    Case(lengths=((130, 3000),), num_heads=1, sliding_window=2500),
)
"""Cases of kernels for parts of a window, which are short in the cases above."""
SEEDS = (0, 1)


def judge(launches: Sequence[Launch], code_object: bytes, mutant: Mutant) -> Verdict:
    """Runs the cases until one catches the mutant."""
    reached = False
    for launch in launches:
        for seed in SEEDS:
            outcome = launch.run(code_object, seed=seed)
            if outcome.findings:
                return Verdict(mutant, outcome.findings[0].check)
            if not outcome.excess <= 1:
                return Verdict(mutant, "wrong result")
            reached = reached or mutant.pc in outcome.report.counters.executed
    return Verdict(mutant, None, reached)


def run(entry: KernelEntry) -> Iterator[Verdict]:
    """The verdict on every mutant of one attention kernel.

    Raises `ValueError` if the kernel itself, unchanged, does not pass.
    """
    code_object = entry.code_object()
    scaled = () if entry.facts["stored"] == entry.facts["dtype"] else SCALED
    windowed = WINDOWED if entry.facts["mask"] in masks.WINDOWED else ()
    long = LONG if entry.facts["mask"] == masks.WINDOW_PART else ()
    launches = [Launch(entry, case) for case in (*CASES, *scaled, *windowed, *long)]
    unchanged = judge(launches, code_object, Mutant(0, (), "none"))
    if unchanged.caught_by:
        raise ValueError(f"{entry.name}: {unchanged.caught_by} without any change")
    words, offset, begin, end = code_of(entry)
    for mutant in mutants(words, entry.arch, begin, end):
        yield judge(launches, mutant.apply(code_object, offset), mutant)


def code_of(entry: KernelEntry) -> tuple[bytes, int, int, int]:
    """The place of a kernel's code: the .text section, its offset in the code object, and the
    kernel's begin and end in it."""
    elf = Elf(entry.code_object())
    text = elf.sections[".text"]
    begin, size = elf.place(entry.symbol)
    begin -= text.offset
    return elf.data[text.offset :][: text.size], text.offset, begin, begin + size


def main(names: Sequence[str]) -> int:
    alive = 0
    known = catalogue("gfx950")
    for name in names or [entry.name for entry in known.families["attention_prefill"]]:
        verdicts = []
        for verdict in run(known.kernel(name)):
            verdicts.append(verdict)
            print(f"{name} {verdict}", flush=True)
        left = len(survivors(verdicts))
        alive += left
        print(f"{name}: {len(verdicts)} mutants, {left} survived", flush=True)
    return alive


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
