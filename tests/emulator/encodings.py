"""Machine words to try a decoder with, for each opcode in every form of its format.

Field positions are those of "Microcode Formats" in the CDNA3 and CDNA4 ISA guides. Many of the
words are no instruction; LLVM says which.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

LITERAL, DPP, SDWA, OFF = 255, 250, 249, 0x7F
SEGMENTS = {"flat": 0, "scratch": 1, "global": 2}
DPP_CONTROLS = (0x1B, 0x101, 0x113, 0x12F, 0x130, 0x134, 0x138, 0x13C, *range(0x140, 0x144), 0x155)


def variations(kind: str, words: list[int], random: Random) -> Iterator[list[int]]:
    """The words with a few bits changed: other registers, constants, offsets and modifiers."""
    for _ in range(2):
        flips = [random.getrandbits(32) & random.getrandbits(32) for _ in words]
        few = random.getrandbits(32) & random.getrandbits(32)
        yield [word ^ flip & few for word, flip in zip(words, flips, strict=True)]
    if kind in ("vop1", "vop2", "vopc"):
        first = words[0] & ~0x1FF
        yield [first | LITERAL, random.getrandbits(32), 0, 0]
        for _ in range(2):
            control = random.choice(DPP_CONTROLS) << 8
            yield [first | DPP, random.getrandbits(32) & ~0x1FF00 | control, 0, 0]
            yield [first | SDWA, sdwa(kind, random), 0, 0]


def sdwa(kind: str, random: Random) -> int:
    """A random SDWA word without the reserved selectors, which crash LLVM."""
    word = random.randrange(224) | random.randrange(7) << 16 | random.getrandbits(4) << 19
    word = word & ~0x7F | random.randrange(100) if word >> 23 & 1 else word & ~(1 << 23)
    if kind == "vopc":
        mask = random.getrandbits(1)
        return word | mask << 15 | random.randrange(0, 100, 2) * mask << 8 | second(random)
    word |= random.randrange(7) << 8 | random.randrange(3) << 11 | random.getrandbits(3) << 13
    return word | second(random) * (kind != "vop1")


def second(random: Random) -> int:
    return random.randrange(7) << 24 | random.getrandbits(3) << 27


def every_number() -> list[tuple[str, int, list[list[int]]]]:
    """(format, opcode number, words to try) of all encodings there can be."""
    v, r = 256, range
    out: list[tuple[str, int, list[list[int]]]] = []

    def add(kind: str, numbers: range, *variants: list[int], shift: int) -> None:
        out.extend(
            (kind, n, [[words[0] | n << shift, *words[1:], 0, 0] for words in variants])
            for n in numbers
        )

    operands = 10 << 16 | 4 << 8 | 2
    add("sop2", r(96), [2 << 30 | operands], [2 << 30 | 4 << 8 | 2], shift=23)
    add("sopk", r(29), [11 << 28 | 10 << 16 | 5], [11 << 28 | 10 << 16 | 5, 7], shift=23)
    sop1 = 0x17D << 23
    add("sop1", r(256), *[[sop1 | d << 16 | s] for d in (10, 0) for s in (2, 0)], shift=8)
    add("sopc", r(128), [0x17E << 23 | 4 << 8 | 2], shift=16)
    add("sopp", r(128), [0x17F << 23 | 1], [0x17F << 23], shift=16)
    smem = 0x30 << 26
    variants = [[smem | 1 << 17 | 8 << 6 | 4, 16], [smem | 1 << 17 | 4, 0]]
    variants += [[smem | 8 << 6, 0], [smem, 0]]
    add("smem", r(256), *variants, shift=18)
    add("vop2", r(62), [10 << 17 | 4 << 9 | v + 2], [10 << 17 | 4 << 9 | v + 2, 7], shift=25)
    add("vop1", r(256), [0x3F << 25 | 10 << 17 | v + 2], [0x3F << 25], shift=9)
    add("vopc", r(256), [0x3E << 25 | 4 << 9 | v + 2], shift=17)
    triples = [(v + 6, v + 4, v + 2), (0, v + 4, v + 2), (0, 0, v + 2)]
    triples += [(0, 4, 2), (0, 4, v + 2), (0, 0, 0)]
    vop3 = [[0x34 << 26 | 10, c << 18 | b << 9 | a] for c, b, a in triples]
    long_numbers = [n for n in r(1024) if n >> 7 != 7]
    for n in long_numbers:
        add("vop3", r(n, n + 1), *vop3, [0x34 << 26, 0], shift=16)
    vop3p = [
        [0x1A7 << 23 | 1 << 14 | 10, 3 << 27 | c << 18 | b << 9 | a] for c, b, a in triples[:3]
    ] + [[0x1A7 << 23 | 10, c << 18 | b << 9 | a] for c, b, a in (triples[0], triples[2])]
    matrix = (v + 96) << 18 | (v + 80) << 9 | v + 64
    vop3p += [[0x1A7 << 23 | acc << 15 | 16, 3 * acc << 27 | matrix] for acc in (0, 1)]
    add("vop3p", r(128), *vop3p, shift=16)
    ds = [10 << 24 | 6 << 16 | 4 << 8 | 2, 6 << 16 | 4 << 8 | 2, 10 << 24 | 4 << 8 | 2, 4 << 8 | 2,
          10 << 24 | 2, 2, 10 << 24, 4 << 8, 0]  # fmt: skip
    gds = [[0x36 << 26 | 1 << 16, w] for w in (2, 0)]
    add("ds", r(256), *[[0x36 << 26, w] for w in ds], *gds, shift=17)
    for kind, segment in SEGMENTS.items():
        registers = [10 << 24 | 4 << 8 | 2, 4 << 8 | 2, 10 << 24 | 2, 2, 0, 10 << 24]
        none = OFF << 16 if segment else 0
        flat = [
            [0x37 << 26 | segment << 14 | sc0 << 16, w | none] for sc0 in (1, 0) for w in registers
        ]
        add(kind, r(128), *flat, shift=18)
    mubuf = 0x38 << 26
    second = 128 << 24 | 2 << 16
    variants = [[mubuf | 1 << 12 | g << 14, second | 4 << 8 | 2] for g in (1, 0)]
    variants += [[mubuf | 1 << 12 | lds << 16, second | 2] for lds in (0, 1)] + [[mubuf, 0]]
    add("mubuf", r(128), *variants, shift=18)
    mtbuf = 0x3A << 26
    add("mtbuf", r(16), [mtbuf | 1 << 12 | 1 << 19, second | 4 << 8 | 2], shift=15)
    images = [[0x3C << 26 | 15 << 8 | 1 << 12, 4 << 8 | 2 | 8 << 16]]
    add("mimg", r(128), *images, shift=18)
    scales = [0xD3AC0000, 3 << 27 | (v + 121) << 9 | v + 120]
    for n in (0xAD, 0xAE):
        scaled = [[*scales, 0xD3000810 | n << 16, acc << 27 | matrix] for acc in (0, 1)]
        out.append(("scaled mfma", n, scaled))
    add("exp", r(1), [0x31 << 26 | 15, 4 << 8 | 2], shift=4)
    return out
