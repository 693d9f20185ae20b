"""A digest of the emulator's sources that decide what a kernel's launch gives.

An opcode's part are the statements that register it, and every definition that these reach by
name. Everything else that runs a wave (decoding, memory, waits, hazards) is every kernel's part,
except statements that a condition on the beginning of the opcode's name keeps from others.
The models of time and the HIP library decide no result.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.proof.cpp_source import Piece, definitions, meaning
from tests.proof.kernel_digest import digest

EMULATOR = Path(__file__).parents[2] / "csrc" / "emulator"
COMMON = ("bindings.cpp", "checks", "loader", "machine", "memory", "isa")
REGISTRY = "Semantics &"
_NAME = re.compile(r"\ball ?\[(.*?)\] ?=")
_FAMILY = re.compile(r'if \(name\.starts_with\("(v_\w+_)"\)\)[^;{}]*;\n')
_ROW = re.compile(r'\{ ?0x[0-9a-f]+ ?, ?"(\w+)"[^{}]*\}')


def emulator_digest(mnemonics: Iterable[str], folder: Path = EMULATOR) -> str:
    """The digest for a kernel with these opcodes (without _e32, _e64, ...)."""
    return _digest(frozenset(mnemonics), folder)


def whole_emulator_digest(folder: Path = EMULATOR) -> str:
    """The digest for kernels of any opcodes."""
    return emulator_digest(sources(folder).mnemonics, folder)


@functools.cache
def _digest(mnemonics: frozenset[str], folder: Path) -> str:
    found = sources(folder)
    return digest(found.common, *(found.digest_of(name) for name in sorted(mnemonics)))


@functools.cache
def sources(folder: Path = EMULATOR) -> Sources:
    """The emulator's sources in `folder`, read once."""
    return Sources(folder)


@dataclass(frozen=True, eq=False)
class Function:
    """A function that registers opcodes: its file and name, and its statements."""

    file: str
    name: str
    statements: tuple[Piece, ...]


class Sources:
    """The emulator's sources, divided into the part of all kernels and the parts of opcodes."""

    def __init__(self, folder: Path) -> None:
        texts = {
            path.relative_to(folder).as_posix(): path.read_text()
            for path in sorted(folder.rglob("*.[ch]pp"))
        }
        bare = {name: meaning(text) for name, text in texts.items()}
        shared = {name: text for name, text in bare.items() if name.startswith(COMMON)}
        self.common = digest(*(_ROW.sub("", _FAMILY.sub("", text)) for text in shared.values()))
        self._of_families = [
            (statement[1], statement[0])
            for text in shared.values()
            for statement in _FAMILY.finditer(text)
        ]
        self._rows: dict[str, list[str]] = defaultdict(list)
        for text in shared.values():
            for row in _ROW.finditer(text):
                self._rows[row[1]].append(row[0])
        self._pieces: dict[str, dict[str, list[Piece]]] = defaultdict(lambda: defaultdict(list))
        self._functions: list[Function] = []
        self._digests: dict[str, str] = {}
        for file, text in texts.items():
            if file.startswith("semantics/"):
                self._read(file, text)
        self._by_name: dict[str, list[Function]] = defaultdict(list)
        for function in self._functions:
            self._by_name[function.name].append(function)
        self._names = frozenset(self._by_name)

    @property
    def mnemonics(self) -> frozenset[str]:
        """The names of all opcodes."""
        return frozenset(self._rows)

    def digest_of(self, mnemonic: str) -> str:
        """The digest of one opcode's part."""
        if mnemonic not in self._digests:
            self._digests[mnemonic] = digest(*self.of(mnemonic))
        return self._digests[mnemonic]

    def of(self, mnemonic: str) -> tuple[str, ...]:
        """The statements and definitions of one opcode, sorted."""
        texts = set(self._rows.get(mnemonic, ()))
        texts |= {text for family, text in self._of_families if mnemonic.startswith(family)}
        named: set[tuple[str, str]] = set()
        functions = self._registering(mnemonic)
        for function in functions:
            for statement in function.statements:
                called = self._called(function.file, statement)
                if _is_part(statement, mnemonic) and (not called or called & functions):
                    texts.add(statement.text)
                    named |= {(function.file, word) for word in statement.words}
        return tuple(sorted(texts | self._reached(named)))

    def _read(self, file: str, text: str) -> None:
        for piece in definitions(text):
            if REGISTRY.replace(" ", "") in piece.text.replace(" ", "") and "{" in piece.text:
                self._functions.append(Function(file, piece.name, piece.body))
            else:
                self._pieces[piece.name][file].append(piece)

    def _registering(self, mnemonic: str) -> set[Function]:
        """Functions with a statement that registers `mnemonic`, those that call them, and so on."""
        found = {
            function
            for function in self._functions
            if any(_registers(statement, mnemonic) for statement in function.statements)
        }
        left = list(found)
        while left:
            called = left.pop()
            for function in self._functions:
                calls = any(
                    called in self._called(function.file, statement)
                    and _is_part(statement, mnemonic)
                    for statement in function.statements
                )
                if calls and function not in found:
                    found.add(function)
                    left.append(function)
        return found

    def _called(self, file: str, statement: Piece) -> set[Function]:
        """The registering functions that a statement of `file` names: the file's own are nearer."""
        named = [f for name in statement.words & self._names for f in self._by_name[name]]
        own = {each.name for each in named if each.file == file}
        return {each for each in named if each.file == file or each.name not in own}

    def _reached(self, named: set[tuple[str, str]]) -> set[str]:
        """The texts of the definitions that words of files name, and of those that these name."""
        texts: set[str] = set()
        left = list(named)
        seen = set(left)
        while left:
            file, word = left.pop()
            files = self._pieces.get(word, {})
            for place in [file] if file in files else files:
                for piece in files[place]:
                    texts.add(piece.text)
                    more = {(place, each) for each in piece.words} - seen
                    seen |= more
                    left += more
        return texts


def _registers(statement: Piece, mnemonic: str) -> bool:
    """Whether a statement gives `mnemonic`, or a name that it makes as it runs, a handler."""
    return any(
        _may_be(expression, statement, mnemonic) for expression in _NAME.findall(statement.text)
    )


def _may_be(expression: str, statement: Piece, mnemonic: str) -> bool:
    literals = Piece(expression).strings
    if not literals:  # a variable: of the strings that the statement lists
        return not statement.strings or mnemonic in statement.strings
    if "+" not in expression:
        return mnemonic == literals[0]
    return re.search(".*".join(map(re.escape, literals)), mnemonic) is not None


def _is_part(statement: Piece, mnemonic: str) -> bool:
    """Whether a statement of a registering function can matter to `mnemonic`."""
    if _NAME.search(statement.text):
        return _registers(statement, mnemonic)
    return not statement.strings or any(each in mnemonic for each in statement.strings)
