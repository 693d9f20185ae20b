"""Compares the wait states that the emulator demands between two instructions with those of LLVM's
hazard recognizer: one fewer is a finding, as many are none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hk_backend import _emulator
from tests.emulator.assembly import MC, TRIPLE, assemble, lines, run, text_of
from tests.processes import Done, finished

# Everything is written and zero, which is also a valid LDS address; v[4:5] is the output.
SETUP = (
    """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_mov_b64 vcc, 0
  s_mov_b32 m0, 0
  s_cmp_eq_u32 0, 0
"""
    + lines("v_mov_b32 v{}, 0", *range(1, 256))
    + lines("v_accvgpr_write_b32 a{}, 0", *range(64))
    + lines("s_mov_b32 s{}, 0", *range(12, 40))
    + """
  s_waitcnt lgkmcnt(0)
  s_mov_b32 s8, s6
  s_mov_b32 s9, s7
  s_movk_i32 s10, 0x1000
  s_mov_b32 s11, 0x20000
  v_mov_b32 v4, s6
  v_mov_b32 v5, s7
  ds_write_b64 v1, v[2:3]
"""
)

# Between two pairs: far apart, nothing in flight, all lanes on, what a pair changes as before.
REST = """
  s_nop 15
  s_nop 15
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_mov_b64 exec, -1
  s_mov_b32 m0, 0
  s_mov_b32 s20, 0
  s_mov_b32 s21, 0
  v_mov_b32 v4, s6
  v_mov_b32 v5, s7
  s_nop 7
"""

Pair = tuple[str, str]

HAZARDS = ("hazard", "matrix-hazard")


def demands(pairs: Iterable[tuple[str, str, int]], arch: str) -> list[bool]:
    """Whether the emulator reports a hazard, for each (first, second, wait states between them)."""
    body, marks = SETUP, []
    for i, (first, second, states) in enumerate(pairs):
        nops = [f"s_nop {min(states - at, 16) - 1}" for at in range(0, states, 16)]
        # the pair is told from others by a literal before it
        body += "\n".join([REST, f"s_mov_b32 s22, 0x{0x10000 + i:x}", first, *nops, second, ""])
        marks.append(f"0x{0x10000 + i:x}")
    out = np.zeros(4096, np.uint32)
    report = run(
        body, None, out, prologue="", arch=arch, lds=4096, vgprs=320,
        launch={"max_findings": 10**6, "max_instructions": 10**6},
    )  # fmt: skip
    # addresses in SGPRs are null: that is found, too, and does not stop the program
    other = {f.message for f in report.findings if f.check not in (*HAZARDS, "out-of-bounds")}
    assert not other
    found = sorted(f.pc for f in report.findings if f.check in HAZARDS)
    assert report.counters.by_class["end"] == 1
    return _between_marks(body, arch, marks, found)


def _between_marks(body: str, arch: str, marks: list[str], found: list[int]) -> list[bool]:
    code = assemble(body, arch=arch, lds=4096, vgprs=320)
    starts = [
        pc for pc, text in _emulator.disassemble(text_of(code), arch)
        if text.startswith("s_mov_b32 s22, 0x1")
    ]  # fmt: skip
    assert len(starts) == len(marks)
    ends = [*starts[1:], 2**62]
    return [any(start <= pc < end for pc in found) for start, end in zip(starts, ends, strict=True)]


def compare(pairs: list[Pair], arch: str) -> dict[int, int]:
    """Compare pairs, and return how many of them need how many wait states."""
    needed = wait_states(pairs, arch)
    enough = [(a, b, n) for (a, b), n in zip(pairs, needed, strict=True)]
    fewer = [(a, b, n - 1) for a, b, n in enough if n > 0]
    reported = demands(enough, arch)
    too_strict = [case for case, found in zip(enough, reported, strict=True) if found]
    reported = demands(fewer, arch)
    too_lax = [case for case, found in zip(fewer, reported, strict=True) if not found]
    assert not too_lax, (len(too_lax), too_lax[:12])
    assert not too_strict, (len(too_strict), too_strict[:12])
    return {n: needed.count(n) for n in set(needed)}


# --- LLVM's own wait states -----------------------------------------------------------------------


ENCODINGS = r"_(vi|gfx9|gfx90a|gfx940|gfx950)$"  # MIR leaves these out
NO_RESULT = r"v_cmpx?_\w+ vcc,.*|.*_store_.*|ds_write.*|s_sendmsg.*|s_setreg.*|.* lds"
FUNCTION = "---\nname: f{index}\nbody: |\n  bb.0:\n    {first}\n    {second}\n    S_ENDPGM 0\n...\n"


def _mc_inst(texts: Sequence[str], arch: str) -> list[tuple[str, list[str]]]:
    """(opcode of this encoding, operands) of each line."""
    done = finished(*MC, f"-mcpu={arch}", "-show-inst", input="\n".join(texts))
    assert not done.stderr, done.stderr
    found = []
    for block in done.stdout.split("<MCInst #")[1:]:
        name = block.split()[1].rstrip(">")
        operands = re.findall(r"<MCOperand (Reg|Imm):(\S+?)>", block)
        plain = [(kind, re.sub("_gfxpre11|_vi", "", value.lower())) for kind, value in operands]
        found.append((name, [f"${value}" if kind == "Reg" else value for kind, value in plain]))
    assert len(found) == len(texts)
    return found


def _names(name: str) -> list[str]:
    """Names that MIR may have for an opcode."""
    if match := re.match(r"(.*)_gfx9\d0_(acd|vcd)$", name):
        plain = match[1]
        return [plain + ("_vgprcd_e64" if match[2] == "vcd" else "_e64"), plain + "_e64"]
    plain = re.sub(ENCODINGS, "", name)
    no_carry = plain.replace("_CO_", "_")
    return [plain, plain + "_e64", no_carry, no_carry + "_e64"]


def _mir(texts: Sequence[str], arch: str) -> dict[str, str]:
    """Each line as MIR: guessed, and corrected by what the parser says until it is content."""
    guesses = {}
    for line, (name, operands) in zip(texts, _mc_inst(texts, arch), strict=True):
        results = 0 if re.fullmatch(NO_RESULT, line) else 1
        results = 2 if re.search("swap|div_scale|_co_u32_e64", line) else results
        guesses[line] = _Guess(_names(name), operands[:results], operands[results:])
    for _ in range(10 * len(texts)):
        text = "".join(
            FUNCTION.format(index=i, first=guess.text(), second="S_NOP 0")
            for i, guess in enumerate(guesses.values())
        )
        error = _llc(text, arch).stderr
        if not error:
            return {line: guess.text() for line, guess in guesses.items()}
        at = int(found[1]) if (found := re.search(r"<stdin>:(\d+):", error)) else 0
        list(guesses.values())[(at - 1) // FUNCTION.count("\n")].correct(error)
    raise AssertionError("no MIR that LLVM understands")


@dataclass
class _Guess:
    names: list[str]
    results: list[str]
    operands: list[str]
    # most instructions need these; they do no harm to others
    implicit: list[str] = field(default_factory=lambda: ["implicit $mode", "implicit $exec"])

    def text(self) -> str:
        target = f"{', '.join(self.results)} = " if self.results else ""
        return f"{target}{self.names[0]} {', '.join([*self.operands, *self.implicit])}"

    def correct(self, error: str) -> None:
        if missing := re.search(r"missing implicit register operand '(.*?)'", error):
            self.implicit.insert(0, missing[1])  # results come before operands
            assert len(self.implicit) < 8, error
        else:
            self.names = self.names[1:]
            assert self.names, error


def _llc(text: str, arch: str) -> Done:
    options = ("-run-pass=post-RA-hazard-rec", "-verify-machineinstrs=0", "-o", "-", "-")
    return finished("llc-22", "-x=mir", f"-mtriple={TRIPLE}", f"-mcpu={arch}", *options, input=text)


def wait_states(pairs: Iterable[tuple[str, str]], arch: str) -> list[int]:
    """Wait states that LLVM inserts between the two instructions of each pair."""
    pairs = list(pairs)
    mir = _mir(list(dict.fromkeys(line for pair in pairs for line in pair)), arch)
    text = "".join(
        FUNCTION.format(index=i, first=mir[first], second=mir[second])
        for i, (first, second) in enumerate(pairs)
    )
    done = _llc(text, arch)
    assert not done.stderr, done.stderr
    bodies = done.stdout.split("bb.0:")[1:]
    assert len(bodies) == len(pairs)
    return [sum(int(n) + 1 for n in re.findall(r"S_NOP (\d+)", body)) for body in bodies]
