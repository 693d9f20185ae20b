"""Machine words to try a decoder with: of each opcode, in every form of its format.

Field positions are those of "Microcode Formats" in the CDNA3 and CDNA4 ISA guides. Many of the
words are no instruction; LLVM says which.
"""

from __future__ import annotations

from random import Random

LITERAL, DPP, SDWA, OFF = 255, 250, 249, 0x7F
VOP3_NUMBER = {"vop1": 0x140, "vop2": 0x100, "vopc": 0}  # where VOP3 has their long forms
SEGMENTS = {"flat": 0, "scratch": 1, "global": 2}
DPP_CONTROLS = [
    *range(0, 256, 37), *range(0x101, 0x110), *range(0x111, 0x120), *range(0x121, 0x130),
    0x130, 0x134, 0x138, 0x13C, *range(0x140, 0x144), *range(0x150, 0x160),
]  # fmt: skip


class Words:
    """Random words; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def bits(self, count: int, share: float = 0.3) -> int:
        """`count` random bits, or mostly 0."""
        return self.random.getrandbits(count) if self.random.random() < share else 0

    def scalar(self) -> int:
        """An SGPR that may begin a group of four, VCC, M0 or EXEC."""
        some = self.random.randrange(0, 100)
        return self.random.choice([some & ~3, some & ~3, some & ~1, some, 106, 107, 124, 126])

    def scalar_source(self) -> int:
        """An SGPR or a constant."""
        constant = self.random.choice([128, 129, 192, 193, 208, *range(240, 249), LITERAL])
        special = self.random.choice([235, 236, 237, 238, 251, 252, 253])
        return self.random.choice([self.scalar(), self.scalar(), constant, constant, special])

    def source(self) -> int:
        """A VGPR, an SGPR or a constant."""
        vgpr = 256 + (self.random.randrange(224) & ~self.random.randrange(2))
        return self.random.choice([vgpr, vgpr, vgpr, self.scalar_source()])

    def source_without_literal(self) -> int:
        return 263 if (source := self.source()) == LITERAL else source

    def vgpr(self) -> int:
        return self.random.randrange(224) & ~self.random.randrange(2)

    def of(self, form: str, number: int) -> list[int]:
        """Words of an opcode; `form` is a format, or vop1, vop2, vopc with -e64, -dpp, -sdwa."""
        base, _, suffix = form.partition("-")
        if suffix == "e64":
            return self.vop3(VOP3_NUMBER[base] + number)
        if base in VOP3_NUMBER:
            return self.vop(base, number, suffix)
        words: list[int] = getattr(self, base)(number)
        return words

    # --- scalar -------------------------------------------------------------------------------

    def sop2(self, number: int) -> list[int]:
        operands = self.scalar_source() << 8 | self.scalar_source()
        return [2 << 30 | number << 23 | self.scalar() << 16 | operands, self.bits(32, 1)]

    def sopk(self, number: int) -> list[int]:
        simm = self.bits(16, 1)
        return [11 << 28 | number << 23 | self.scalar() << 16 | simm, self.bits(32, 1)]

    def sop1(self, number: int) -> list[int]:
        return [
            0x17D << 23 | self.scalar() << 16 | number << 8 | self.scalar_source(),
            self.bits(32, 1),
        ]

    def sopc(self, number: int) -> list[int]:
        return [
            0x17E << 23 | number << 16 | self.scalar_source() << 8 | self.scalar_source(),
            self.bits(32, 1),
        ]

    def sopp(self, number: int) -> list[int]:
        simm = self.random.choice([self.bits(16, 1), self.bits(4, 1), 0, self.bits(16, 1) & 0xF7F])
        return [0x17F << 23 | number << 16 | simm]

    def smem(self, number: int) -> list[int]:
        offset = self.random.choice([1 << 17, 1 << 17, 1 << 17 | 1 << 14, 1 << 14, 0])
        second = self.bits(21, 1) if offset >> 17 else self.scalar()
        first = 0x30 << 26 | number << 18 | offset | self.bits(1) << 16
        base = self.random.randrange(0, 48) & ~1
        return [first | self.scalar() << 6 | base >> 1, second | self.scalar() << 25]

    # --- vector -------------------------------------------------------------------------------

    def vop(self, base: str, number: int, suffix: str) -> list[int]:
        """VOP1, VOP2, VOPC in 32 bits, perhaps with a second word: a literal, DPP or SDWA."""
        source0, second, vsrc1 = self.source(), self.bits(32, 1), self.vgpr()
        if suffix == "dpp":
            control = self.random.choice(DPP_CONTROLS)
            second = self.vgpr() | control << 8 | self.bits(1) << 19 | self.bits(4) << 20
            source0, second = DPP, second | self.bits(8, 1) << 24
        elif suffix == "sdwa":
            source0, second = SDWA, self.sdwa(base)
        if base == "vop1":
            return [0x3F << 25 | self.vgpr() << 17 | number << 9 | source0, second]
        if base == "vopc":
            return [0x3E << 25 | number << 17 | vsrc1 << 9 | source0, second]
        return [number << 25 | self.vgpr() << 17 | vsrc1 << 9 | source0, second]

    def sdwa(self, base: str) -> int:
        def select() -> int:
            return self.random.randrange(7)

        scalar0 = self.random.random() < 0.2
        word = self.scalar() & 127 | 1 << 23 if scalar0 else self.vgpr()
        word |= select() << 16 | self.bits(1) << 19 | self.bits(2) << 20
        if base == "vopc":
            mask = 1 << 7 | (self.scalar() & ~1) if self.random.random() < 0.5 else 0
            word |= mask << 8
        else:
            word |= select() << 8 | self.random.randrange(3) << 11 | self.bits(1) << 13
            word |= self.bits(2) << 14
        if base != "vop1":
            word |= select() << 24 | self.bits(1) << 27 | self.bits(2) << 28
        return word

    def vop3(self, number: int) -> list[int]:
        modifiers = self.bits(3) << 8  # absolute
        if self.random.random() < 0.4:
            modifiers |= self.bits(4) << 11 | self.bits(1) << 15  # op_sel, clamp
        if self.random.random() < 0.3:
            modifiers = (self.scalar() & ~1) << 8  # a carry's mask
        target = self.vgpr() if self.random.random() < 0.6 else self.scalar() & ~1
        count = self.random.choice([1, 2, 3])
        sources = [self.source_without_literal() if i < count else 0 for i in range(3)]
        if self.random.random() < 0.3:
            sources[2] = self.scalar() & ~1
        first = 0x34 << 26 | number << 16 | modifiers | target
        return [first, self.bits(5) << 27 | sources[2] << 18 | sources[1] << 9 | sources[0]]

    def vop3p(self, number: int) -> list[int]:
        count = self.random.choice([2, 3])
        sources = [self.source_without_literal() if i < count else 0 for i in range(3)]
        first = 0x1A7 << 23 | number << 16 | self.bits(1) << 15 | self.bits(3) << 8
        first |= self.bits(3) << 11 | self.random.getrandbits(1) << 14 | self.vgpr()
        second = self.random.choice([3, 3, self.random.getrandbits(2)]) << 27 | self.bits(3) << 29
        return [first, second | sources[2] << 18 | sources[1] << 9 | sources[0]]

    def mfma(self, number: int) -> list[int]:
        constant = self.random.choice([128, 193, 240, 242])
        accumulator = self.random.choice([256 + self.vgpr(), 256 + self.vgpr(), constant])
        first = 0x1A7 << 23 | number << 16 | self.random.getrandbits(1) << 15
        first |= self.bits(4) << 11 | self.bits(3) << 8 | self.vgpr()
        second = self.random.getrandbits(2) << 27 | self.bits(3) << 29 | accumulator << 18
        a = self.random.choice([256 + self.vgpr()] * 4 + [self.scalar_source()])
        return [first, second | (256 + self.vgpr()) << 9 | a]

    def scaled_mfma(self, number: int) -> list[int]:
        first, second = self.mfma(number)
        prefix = 0xD3AC0000 | self.bits(3) << 11 | self.random.getrandbits(1) << 14
        scales = self.source_without_literal() << 9 | self.source_without_literal()
        select = self.random.getrandbits(2) << 27
        return [prefix, select | scales, first & ~(1 << 10) | 1 << 11, second & ~(1 << 31)]

    # --- memory -------------------------------------------------------------------------------

    def ds(self, number: int) -> list[int]:
        count = self.random.choice([0, 1, 2, 3])
        registers = [self.vgpr() if i < count else 0 for i in range(3)]
        first = 0x36 << 26 | number << 17 | self.bits(1, 0.1) << 16 | self.bits(16, 0.5)
        first |= self.bits(1) << 25
        target = self.random.choice([self.vgpr(), 0])
        return [first, target << 24 | registers[2] << 16 | registers[1] << 8 | registers[0]]

    def flat(self, number: int, segment: int = 0) -> list[int]:
        first = 0x37 << 26 | self.bits(1) << 25 | number << 18 | self.bits(2) << 16
        first |= segment << 14 | self.bits(13, 0.5)
        if segment == SEGMENTS["scratch"]:
            first |= self.bits(1, 0.5) << 13
        address = self.random.choice([OFF, self.scalar() & 127]) if segment else 0
        target, data = (self.random.choice([self.vgpr(), 0]) for _ in range(2))
        second = target << 24 | self.bits(1) << 23 | address << 16 | data << 8
        return [first, second | self.random.choice([self.vgpr(), 0])]

    def scratch(self, number: int) -> list[int]:
        return self.flat(number, SEGMENTS["scratch"])

    def global_(self, number: int) -> list[int]:
        return self.flat(number, SEGMENTS["global"])

    def mubuf(self, number: int) -> list[int]:
        first = 0x38 << 26 | number << 18 | self.bits(2) << 14 | self.random.getrandbits(2) << 12
        first |= self.bits(12, 0.5) | self.bits(1) << 16 | self.bits(1) << 17
        offset = min(self.scalar_source(), 248) << 24
        second = offset | self.bits(1) << 23 | self.random.randrange(24) << 16
        return [first, second | self.vgpr() << 8 | self.random.choice([self.vgpr(), 0])]


def forms_of(kind: str) -> list[str]:
    """Every form in which an opcode of a format is tried."""
    if kind in VOP3_NUMBER:
        return [kind, f"{kind}-e64", f"{kind}-dpp", f"{kind}-sdwa"]
    return ["global_" if kind == "global" else kind]


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
    add("exp", r(1), [0x31 << 26 | 15, 4 << 8 | 2], shift=4)
    return out
