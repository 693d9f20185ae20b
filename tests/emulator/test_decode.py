"""The decoder agrees with LLVM's in text and size, wherever both know the instruction."""

from __future__ import annotations

import re
import struct
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random

import pytest

from hk_backend import _emulator
from tests.emulator import encodings, llvm

ARCHES = ("gfx942", "gfx950")
DECODER = pytest.mark.source_proof("csrc/emulator/isa", "docs/emulator.md")


def decode(words: list[int], arch: str) -> tuple[int, str] | None:
    """(bytes, text) of the instruction at words[0], as the emulator has it."""
    listed = _emulator.disassemble(struct.pack(f"<{len(words)}I", *words), arch)
    text = listed[0][1]
    size = listed[1][0] if len(listed) > 1 else 4 * len(words)
    return None if text.startswith("unknown") else (size, llvm.normal(text))


DOCS = Path(__file__).parents[2] / "docs" / "emulator.md"


def documented(heading: str) -> list[str]:
    """Patterns of the instructions in a table of the docs, by the heading of its first column."""
    _, _, table = DOCS.read_text().partition(f"| {heading} | Instructions |\n")
    rows = table.split("\n\n")[0].splitlines()[1:]
    patterns = [p for row in rows for p in re.findall("`([^`]+)`", row.split("|")[2])]
    assert patterns
    return patterns


def listed(name: str, patterns: list[str]) -> set[str]:
    """The patterns that an instruction's name matches."""
    return {pattern for pattern in patterns if fnmatchcase(name, pattern)}


# Instructions that LLVM knows for these archs and the emulator does not decode: exactly these.
NOT_DECODED = documented("Not decoded")
# Only the first half of v_mfma_scale_*, which is decoded as a whole.
HALF = "v_mfma_ld_scale_b32"
# Decoded, but not printed as LLVM does, or refused for a reason of its own.
OTHER_TEXT = re.compile(
    r"s_sendmsg(halt)? .*"  # names of messages of the graphics pipeline
    r"|v_mfma_f32_\d+x\d+x\d+_f8f6f4 .* (cbsz|blgp):[567].*"  # reserved element types: refused
    r'|ds_swizzle_b32 .*(BROADCAST|"00000").*|v_nop .+'  # other names of the same bits; of nothing
    r"|(s_setreg_imm32_b32 hwreg\(\d+,|v_cvt_f16_[iu]16_e32) .*"  # how a constant is written
)


def compare(cases: list[list[int]], arch: str) -> tuple[set[str], set[str]]:
    """Returns the texts that both know, and those that LLVM alone knows.

    LLVM ignores bits that an opcode has no use for. So its text is assembled first: it is on words
    as the assembler makes them that the two must agree, in text and size.
    """
    texts = {theirs[1] for theirs in llvm.disassemble(cases, arch) if theirs}
    same, unknown, wrong = set(), set(), []
    for text, words in llvm.assemble(texts, arch).items():
        padded = [*words, 0, 0, 0][: max(4, len(words))]
        ours = decode(padded, arch)
        if text.startswith(HALF) or OTHER_TEXT.fullmatch(text):
            continue
        if ours is None:
            unknown.add(text)
        elif ours != (4 * len(words), text):
            wrong.append((" ".join(f"{w:08x}" for w in words), text, ours))
        else:
            same.add(text)
    assert not wrong, (len(wrong), wrong[:5])
    return same, unknown


@DECODER
@pytest.mark.parametrize("arch", ARCHES)
def test_every_opcode_number_of_every_format(arch: str) -> None:
    """The decoder knows every opcode that LLVM knows, but the documented ones, and no other."""
    numbers = encodings.every_number()
    cases = [(kind, number, words) for kind, number, variants in numbers for words in variants]
    same, unknown = compare([words for *_, words in cases], arch)
    by_name = {text.split()[0] for text in unknown}
    assert {name for name in by_name if not listed(name, NOT_DECODED)} == set()
    used = set().union(*(listed(name, NOT_DECODED) for name in by_name))
    assert used == set(NOT_DECODED), "an entry of the list is not needed"
    assert len(same) > 1000
    answers = llvm.disassemble([words for *_, words in cases], arch)
    theirs = {case[:2] for case, answer in zip(cases, answers, strict=True) if answer}
    assert {case[:2] for case in cases if decode(case[2], arch)} <= theirs


@DECODER
@pytest.mark.parametrize("arch", ARCHES)
def test_every_opcode_in_every_form(arch: str) -> None:
    """Other operands and modifiers. Every opcode, and every form that LLVM allows, is met."""
    random = Random(1)
    cases = []
    for kind, _, variants in encodings.every_number():
        for words in variants:
            cases += [words, *encodings.variations(kind, words, random)]
    same, _ = compare(cases, arch)
    met = {re.sub(r"_(e32|e64|dpp|sdwa)$", "", text.split()[0]) for text in same}
    opcodes = {mnemonic for _, _, mnemonic, _ in _emulator.opcodes(arch)}
    assert met == opcodes - {"s_sendmsg", "s_sendmsghalt"}
    forms = ("_e32 ", "_e64 ", "_dpp ", "_sdwa ")
    for sign in (*forms, " clamp", " mul:", "|", "-v", "a[", " neg_lo:"):
        assert sum(sign in text for text in same) > 20, sign
    assert sum("0x" in text for text in same) > 1000  # literals


@DECODER
@pytest.mark.parametrize("arch", ARCHES)
def test_random_words(arch: str) -> None:
    """Random words crash nothing, decode as in LLVM, or are printed as unknown words."""
    random = Random(2)
    cases = [[random.getrandbits(32) for _ in range(4)] for _ in range(5_000)]
    same, _ = compare(cases, arch)
    assert len(same) > 700
    unknown = 0
    for words in cases:
        text = _emulator.disassemble(struct.pack("<4I", *words), arch)[0][1]
        if text.startswith("unknown"):
            unknown += 1
            assert text == f"unknown 0x{words[0]:08x} 0x{words[1]:08x}"
    assert 0 < unknown < len(cases)


def test_the_docs_list_what_is_not_executed_and_only_that() -> None:
    """An instruction is listed if and only if some arch refuses it; none that is listed is
    executed."""
    opcodes = [(m, executed) for arch in ARCHES for *_, m, executed in _emulator.opcodes(arch)]
    patterns = documented("Decoded, but not executed")
    refused = {m for m, executed in opcodes if not executed}
    assert {m for m in refused if not listed(m, patterns)} == set()
    assert {m for m, executed in opcodes if executed and listed(m, patterns)} == set()
    assert set().union(*(listed(m, patterns) for m in refused)) == set(patterns)
