"""The decoder against LLVM's: the same text and size for everything that both know."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.kernels import arches, catalogue
from tests.emulator import encodings, llvm
from tests.emulator.assembly import assemble, needs_llvm, run, text_of
from tests.kernels.cover import of_some_kinds

OBJDUMP = shutil.which("llvm-objdump-22")
ARCHES = ("gfx942", "gfx950")
SHIPPED = sorted({(entry.path, arch) for arch in arches() for entry in catalogue(arch).kernels})
"""Each shipped code object, and its arch."""


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


# Of what LLVM knows for these archs, what the emulator refuses to decode. Exact: no entry too many,
# none too few.
NOT_DECODED = documented("Not decoded")
# Only the first half of v_mfma_scale_*, which is decoded as a whole.
HALF = "v_mfma_ld_scale_b32"
# Decoded, but not printed as LLVM does, or refused for a reason of its own.
OTHER_TEXT = re.compile(
    r"s_sendmsg(halt)? .*"  # names of messages of the graphics pipeline
    r"|v_mfma_f32_\d+x\d+x\d+_f8f6f4 .* (cbsz|blgp):[567].*"  # reserved element types: refused
)


def compare(cases: list[list[int]], arch: str) -> tuple[set[str], set[str]]:
    """(texts that both know, of what LLVM knows and the emulator does not).

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


@llvm.needs_libllvm
@pytest.mark.parametrize("arch", ARCHES)
def test_every_opcode_number_of_every_format(arch: str) -> None:
    """What LLVM knows is decoded alike, but for what is listed."""
    cases = [words for _, _, variants in encodings.every_number() for words in variants]
    same, unknown = compare(cases, arch)
    by_name = {text.split()[0] for text in unknown}
    assert {name for name in by_name if not listed(name, NOT_DECODED)} == set()
    used = set().union(*(listed(name, NOT_DECODED) for name in by_name))
    assert used == set(NOT_DECODED), "an entry of the list is not needed"
    assert len(same) > 1000


@llvm.needs_libllvm
@pytest.mark.parametrize("arch", ARCHES)
def test_opcode_numbers_that_llvm_does_not_know_are_unknown(arch: str) -> None:
    cases = [
        (kind, number, words)
        for kind, number, variants in encodings.every_number()
        for words in variants
    ]
    known, ours = set(), {}
    theirs_of = llvm.disassemble([words for *_, words in cases], arch)
    for (kind, number, words), theirs in zip(cases, theirs_of, strict=True):
        known |= {(kind, number)} if theirs else set()
        if text := decode(words, arch):
            ours[kind, number] = text
    assert not {key: text for key, text in ours.items() if key not in known}


@llvm.needs_libllvm
@pytest.mark.parametrize("arch", ARCHES)
def test_every_opcode_in_every_form(arch: str) -> None:
    """Random operands and modifiers. Every opcode, and every form that LLVM allows, is met."""
    generate = encodings.Words(seed=1)
    opcodes = _emulator.opcodes(arch)
    cases = [
        [*generate.of(form, number), 0, 0, 0][:4]
        for kind, number, _, _ in opcodes
        for form in encodings.forms_of(kind)
        for _ in range(20)
    ]
    cases += [words for _, _, variants in encodings.every_number() for words in variants]
    same, _ = compare(cases, arch)
    met = {re.sub(r"_(e32|e64|dpp|sdwa)$", "", text.split()[0]) for text in same}
    assert met == {mnemonic for _, _, mnemonic, _ in opcodes} - {"s_sendmsg", "s_sendmsghalt"}
    forms = ("_e32 ", "_e64 ", "_dpp ", "_sdwa ")
    for sign in (*forms, " clamp", " mul:", "|", "-v", "a[", " neg_lo:"):
        assert sum(sign in text for text in same) > 20, sign
    assert sum("0x" in text for text in same) > 1000  # literals


@llvm.needs_libllvm
@pytest.mark.parametrize("arch", ARCHES)
def test_random_words(arch: str) -> None:
    """Nothing crashes; what both know is the same; what is not known prints its words."""
    random = Random(2)
    cases = [[random.getrandbits(32) for _ in range(4)] for _ in range(20_000)]
    same, _ = compare(cases, arch)
    assert len(same) > 3000
    unknown = 0
    for words in cases:
        text = _emulator.disassemble(struct.pack("<4I", *words), arch)[0][1]
        if text.startswith("unknown"):
            unknown += 1
            assert text == f"unknown 0x{words[0]:08x} 0x{words[1]:08x}"
    assert 0 < unknown < len(cases)


# Assembled, so that the words come from LLVM's encoder and not from our reading of the manual.
CORPUS = """
v_add_f32_e32 v1, v2, v3
v_add_f32_e32 v1, s2, v3
v_add_f32_e32 v1, 0x40490fdb, v3
v_add_f32_e64 v1, -v2, |v3| clamp mul:2
v_add_f32_e64 v1, s2, -1.0 div:2
v_mul_f32_dpp v1, v2, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
v_max_f32_dpp v1, -v2, |v3| row_ror:8 row_mask:0x5 bank_mask:0xa bound_ctrl:1
v_add_f16_sdwa v1, v2, -v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0 src1_sel:WORD_1
v_cvt_f32_bf16_sdwa v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1
v_cndmask_b32_e32 v1, v2, v3, vcc
v_cndmask_b32_e64 v1, v2, -v3, s[4:5]
v_cmp_lt_f32_e64 s[4:5], v1, |v2|
v_cmp_class_f16_e32 vcc, v1, v2
v_fmaak_f32 v1, v2, v3, 0x42280000
v_fmamk_f32 v1, v2, 0x42480000, v3
v_fma_f16 v1, v2, v3, -v4 op_sel:[1,0,1,1]
v_fma_mix_f32 v1, v2, -v3, |v4| op_sel:[1,0,0] op_sel_hi:[1,1,0]
v_pk_fma_f16 v1, v2, v3, v4 op_sel:[0,1,0] op_sel_hi:[1,0,1] neg_lo:[1,0,0] neg_hi:[0,0,1] clamp
v_pk_fma_f32 v[2:3], v[4:5], s[6:7], v[8:9] op_sel_hi:[1,0,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
v_pk_mov_b32 v[2:3], v[4:5], v[6:7] op_sel:[1,0]
v_permlane32_swap_b32_e32 v1, v2
v_cvt_pk_bf16_f32 v1, v2, -v3
v_cvt_scalef32_pk_fp8_bf16 v1, v2, v3 op_sel:[0,0,1]
v_bitop3_b32 v1, v2, v3, v4 bitop3:0x6c
v_mfma_f32_32x32x16_bf16 a[0:15], v[4:7], a[8:11], a[0:15]
v_mfma_f32_16x16x32_f16 v[0:3], a[4:7], v[8:11], 1.0 cbsz:2 abid:1 blgp:3
v_mfma_f32_32x32x2_f32 v[0:15], v4, v5, 0
v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3], v20, v21 op_sel:[1,0,0] op_sel_hi:[0,1,0] cbsz:1
v_smfmac_f32_32x32x32_bf16 v[0:15], v[16:19], v[20:27], v28 cbsz:1 abid:3
v_accvgpr_write_b32 a7, v1
v_accvgpr_read_b32 v1, a255
v_accvgpr_mov_b32 a1, a2
ds_read_b64_tr_b16 v[2:3], v1 offset:4096
ds_read2st64_b32 v[2:3], v1 offset0:1 offset1:255
ds_write_b128 v1, a[2:5] offset:16
buffer_load_dwordx4 v1, s[8:11], s3 offen offset:4080 lds
buffer_load_dwordx2 a[2:3], v[4:5], s[8:11], 0 idxen offen offset:8 sc0 nt sc1
buffer_store_short_d16_hi v1, v2, s[8:11], 64 offen
buffer_atomic_pk_add_bf16 v1, v2, s[8:11], 0 offen
global_load_lds_dwordx4 v1, s[4:5] offset:-4096
global_load_dwordx3 v[2:4], v[6:7], off offset:4095 sc1
global_atomic_pk_add_f16 v1, v[2:3], v4, off sc0
flat_atomic_add_f64 v[2:3], v[4:5]
scratch_load_dwordx2 v[2:3], off, s4 offset:16
s_load_dwordx8 s[8:15], s[0:1], s4 offset:0x10
s_buffer_load_dwordx2 s[4:5], s[8:11], 0x40
s_waitcnt vmcnt(62) expcnt(0) lgkmcnt(14)
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 0xf0
s_getreg_b32 s1, hwreg(HW_REG_XCC_ID)
s_mov_b32 s1, 0x12345678
s_mov_b64 s[2:3], -16
s_cselect_b64 s[2:3], exec, vcc
s_bitcmp1_b32 s4, 31
s_and_saveexec_b64 s[2:3], vcc
s_mul_hi_u32 s1, s2, s3
s_set_gpr_idx_on s2, gpr_idx(SRC0,DST)
s_set_gpr_idx_on 0x12345678, gpr_idx()
s_set_gpr_idx_idx s3
s_set_gpr_idx_mode gpr_idx(SRC1,SRC2)
s_set_gpr_idx_off
v_cvt_f32_fp8_sdwa v1, v2 src0_sel:BYTE_2
s_setprio 3
s_barrier
s_sendmsg sendmsg(MSG_INTERRUPT)
"""  # noqa: E501


@needs_llvm
@llvm.needs_libllvm
def test_what_the_assembler_encodes() -> None:
    lines = [line for line in CORPUS.splitlines() if line]
    section = text_of(assemble("\n".join(lines)))
    listed = _emulator.disassemble(section, "gfx950")[: len(lines)]
    assert [llvm.normal(text) for _, text in listed] == lines


@pytest.mark.skipif(OBJDUMP is None, reason="llvm-objdump-22 is not installed")
@pytest.mark.parametrize(
    ("path", "arch"),
    of_some_kinds("decoded", 3, {f"{arch} {path.stem}": [path, arch] for path, arch in SHIPPED}),
)
def test_the_shipped_code_objects(path: Path, arch: str) -> None:
    """`make test` compares some, since each form of each opcode is compared above."""
    theirs = objdump(path, arch)
    ours = dict(_emulator.disassemble(text_of(path.read_bytes()), arch))
    assert len(theirs) > 1000
    assert {pc: llvm.normal(ours.get(pc, "")) for pc in theirs} == theirs


def objdump(path: Path, arch: str) -> dict[int, str]:
    """Text by offset in .text, without what pads it."""
    assert OBJDUMP
    command = [OBJDUMP, "-d", f"--mcpu={arch}", str(path)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"^\t(\S.*?)\s*// ([0-9A-F]{12}): ", listing, re.M)
    start = int(lines[0][1], 16)
    return {int(pc, 16) - start: llvm.normal(text) for text, pc in lines}


def test_the_docs_list_what_is_not_executed_and_only_that() -> None:
    """Both ways: what is refused on some arch is listed, and what is listed is executed on none."""
    opcodes = [(m, executed) for arch in ARCHES for *_, m, executed in _emulator.opcodes(arch)]
    patterns = documented("Decoded, but not executed")
    refused = {m for m, executed in opcodes if not executed}
    assert {m for m in refused if not listed(m, patterns)} == set()
    assert {m for m, executed in opcodes if executed and listed(m, patterns)} == set()
    assert set().union(*(listed(m, patterns) for m in refused)) == set(patterns)


@needs_llvm
@pytest.mark.parametrize("words", ["0x7fffffff, 0x1234", "0xffffffff", "0xd3ff0000, 0x1"])
def test_an_unknown_instruction_is_an_error_that_prints_it(words: str) -> None:
    report = run(f"s_branch on\n .long {words}\n on: .long {words}", None, np.zeros(64, np.uint32))
    finding = report.findings[0]
    assert (finding.check, len(report.findings)) == ("unknown-instruction", 1)
    first = words.split(",", maxsplit=1)[0]
    assert finding.instruction.startswith(f"unknown {first}")
    assert first in finding.message
