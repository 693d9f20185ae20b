"""How many wait states LLVM itself puts between two instructions, to compare hazards.cpp with.

The assembler says which machine instruction a line of text is (-show-inst); as MIR, in functions of
two instructions, they go through the pass that inserts s_nop (post-RA-hazard-rec).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

MC, LLC = shutil.which("llvm-mc-22"), shutil.which("llc-22")
needs_llc = pytest.mark.skipif(
    not (MC and LLC), reason="llvm-mc-22 or llc-22 is not installed: no hazards to compare with"
)
ENCODINGS = r"_(vi|gfx9|gfx90a|gfx940|gfx950)$"  # of one opcode: MIR has the opcode alone
NO_RESULT = r"v_cmpx?_\w+ vcc,.*|.*_store_.*|ds_write.*|s_sendmsg.*|s_setreg.*|.* lds"
FUNCTION = "---\nname: f{index}\nbody: |\n  bb.0:\n    {first}\n    {second}\n    S_ENDPGM 0\n...\n"


def _run(command: list[str], text: str) -> tuple[str, str]:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


def _mc_inst(lines: Sequence[str], arch: str) -> list[tuple[str, list[str]]]:
    """(opcode of this encoding, operands) of each line."""
    command = [str(MC), "-triple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-show-inst"]
    out, errors = _run(command, "\n".join(lines))
    assert not errors, errors
    found = []
    for block in out.split("<MCInst #")[1:]:
        name = block.split()[1].rstrip(">")
        operands = re.findall(r"<MCOperand (Reg|Imm):(\S+?)>", block)
        found.append((name, [_register(v) if kind == "Reg" else v for kind, v in operands]))
    assert len(found) == len(lines)
    return found


def _register(name: str) -> str:
    return "$" + name.lower().replace("_gfxpre11", "").replace("_vi", "")


def _names(name: str) -> list[str]:
    """What MIR may call it."""
    if match := re.match(r"(.*)_gfx9\d0_(acd|vcd)$", name):
        plain = match[1]
        return [plain + ("_vgprcd_e64" if match[2] == "vcd" else "_e64"), plain + "_e64"]
    plain = re.sub(ENCODINGS, "", name)
    no_carry = plain.replace("_CO_", "_")
    return [plain, plain + "_e64", no_carry, no_carry + "_e64"]


def _mir(lines: Sequence[str], arch: str) -> dict[str, str]:
    """Each line as MIR: guessed, and corrected by what the parser says until it is content."""
    guesses = {}
    for line, (name, operands) in zip(lines, _mc_inst(lines, arch), strict=True):
        results = 0 if re.fullmatch(NO_RESULT, line) else 1
        results = 2 if re.search("swap|div_scale|_co_u32_e64", line) else results
        guesses[line] = _Guess(_names(name), operands[:results], operands[results:])
    for _ in range(10 * len(lines)):
        text = "".join(
            FUNCTION.format(index=i, first=guess.text(), second="S_NOP 0")
            for i, guess in enumerate(guesses.values())
        )
        error = _llc(text, arch)[1]
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
    # of most instructions; more than needed does no harm
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


def _llc(text: str, arch: str) -> tuple[str, str]:
    command = [
        str(LLC), "-x=mir", "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={arch}",
        "-run-pass=post-RA-hazard-rec", "-verify-machineinstrs=0", "-o", "-", "-",
    ]  # fmt: skip
    return _run(command, text)


def wait_states(pairs: Iterable[tuple[str, str]], arch: str) -> list[int]:
    """Wait states that LLVM inserts between the two instructions of each pair."""
    pairs = list(pairs)
    mir = _mir(list(dict.fromkeys(line for pair in pairs for line in pair)), arch)
    text = "".join(
        FUNCTION.format(index=i, first=mir[first], second=mir[second])
        for i, (first, second) in enumerate(pairs)
    )
    out, error = _llc(text, arch)
    assert not error, error
    bodies = out.split("bb.0:")[1:]
    assert len(bodies) == len(pairs)
    return [sum(int(n) + 1 for n in re.findall(r"S_NOP (\d+)", body)) for body in bodies]
