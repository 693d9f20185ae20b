"""Machine words to try a decoder with: of each opcode, in every form of its format.

Field positions are those of "Microcode Formats" in the CDNA3 and CDNA4 ISA guides. Many of the
words are no instruction; LLVM says which.
"""

from __future__ import annotations

from random import Random

LITERAL, DPP, SDWA, OFF = 255, 250, 249, 0x7F
VOP3_NUMBER = {"vop1": 0x140, "vop2": 0x100, "vopc": 0}  # where VOP3 has their long forms
SEGMENTS = {"flat": 0, "scratch": 1, "global": 2}
NUMBERS = {
    "sop2": 96, "sopk": 29, "sop1": 256, "sopc": 128, "sopp": 128, "smem": 256, "vop2": 62,
    "vop1": 256, "vopc": 256, "vop3": 896, "vop3p": 128, "mfma": 128, "scaled_mfma": 128,
    "ds": 256, "flat": 128, "scratch": 128, "global": 128, "mubuf": 128, "mtbuf": 16,
}  # fmt: skip
"""How many opcode numbers a format has."""
TRIES, MORE_TRIES = 20, 40
PLAIN = 0.25
"""Share of words whose operands are all 0: some opcodes have none."""
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
        words: list[int] = getattr(self, "global_" if base == "global" else base)(number)
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
        if base == "vop1" and self.random.random() < PLAIN:
            return [0x3F << 25 | number << 9, 0]
        source0, vsrc1 = self.source(), self.vgpr()
        second = self.bits(self.random.choice([16, 32]), 1)
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
        if self.random.random() < PLAIN:
            return [0x34 << 26 | number << 16, 0]
        modifiers = self.bits(3) << 8  # absolute
        if self.random.random() < 0.4:
            modifiers |= self.bits(4) << 11 | self.bits(1) << 15  # op_sel, clamp
        if self.random.random() < 0.3:
            modifiers = (self.scalar() & ~1) << 8  # a carry's mask
        target = self.vgpr() if self.random.random() < 0.6 else self.scalar() & ~1
        count = self.random.choice([1, 2, 3])
        sources = [self.source_without_literal() if i < count else 0 for i in range(3)]
        if self.random.random() < PLAIN:
            sources[:2] = self.scalar(), self.scalar()
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
        if self.random.random() < PLAIN:
            return [0x36 << 26 | number << 17, 0]
        count = self.random.choice([0, 1, 2, 3])
        registers = [self.vgpr() if i < count else 0 for i in range(3)]
        first = 0x36 << 26 | number << 17 | self.bits(1, 0.2) << 16 | self.bits(16, 0.5)
        first |= self.bits(1, 0.2) << 25
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

    def mtbuf(self, number: int) -> list[int]:
        return [0x3A << 26 | number << 15 | 1 << 12 | 1 << 19, 128 << 24 | 2 << 16 | 4 << 8 | 2]


def words_of_every_number(seed: int) -> list[tuple[str, int, list[int]]]:
    """(format, opcode number, four words) of each opcode number that there can be, in each form."""
    words, found = Words(seed), []
    for kind, numbers in NUMBERS.items():
        forms = [kind, f"{kind}-e64", f"{kind}-dpp", f"{kind}-sdwa"]
        for number in range(numbers):
            for form in forms if kind in VOP3_NUMBER else [kind]:
                tries = MORE_TRIES if kind == "vop3" else TRIES
                found += [(kind, number, words.of(form, number)) for _ in range(tries)]
    return [(kind, number, [*code, 0, 0, 0][:4]) for kind, number, code in found]
