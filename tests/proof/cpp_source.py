"""C++ text in pieces: the definitions of a file, and the statements of a function.

This is no parser of C++: it knows comments, strings, brackets, and that a definition of this
project begins in the first column or within a namespace. Comments and line breaks are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_NAMESPACE = re.compile(r"\s*(?:inline\s+)?namespace\b[^{;]*\{")
_WORD = re.compile(r"[A-Za-z_]\w*")
_STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
_TYPE = re.compile(r"(?:enum class|enum|struct|class|union|using)\s+(?:alignas\([^)]*\)\s*)?(\w+)")
_ARGUMENTS = re.compile(r"<[^<>]*>")


@dataclass(frozen=True)
class Piece:
    """A definition or a statement, without comments, on one line."""

    text: str

    @cached_property
    def words(self) -> frozenset[str]:
        """Every identifier in it."""
        return frozenset(_WORD.findall(_STRING.sub("", self.text)))

    @cached_property
    def strings(self) -> tuple[str, ...]:
        """The string literals in it, in order."""
        return tuple(_STRING.findall(self.text))

    @cached_property
    def name(self) -> str:
        """The macro, type, function or variable that it defines."""
        if self.text.startswith("#define"):
            return _WORD.findall(self.text)[1]
        head = _without_template(self.text)
        if kind := _TYPE.match(head):
            return kind[1]
        words = _WORD.findall(_ARGUMENTS.sub("", re.split(r"[({=;\[]", head, maxsplit=1)[0]))
        return words[-1] if words else ""

    @cached_property
    def body(self) -> tuple[Piece, ...]:
        """The statements of a function."""
        start, end = self.text.find("{"), self.text.rfind("}")
        return () if start < 0 else tuple(_pieces(self.text[start + 1 : end]))


def meaning(text: str) -> str:
    """`text` without comments, and with one space for any number of them."""
    bare = _COMMENT.sub(lambda m: m[0] if m[0].startswith('"') else " ", text)
    lines = [" ".join(line.split()) for line in bare.replace("\\\n", " ").splitlines()]
    return "\n".join(line for line in lines if line)


def definitions(text: str) -> tuple[Piece, ...]:
    """The definitions of a file, those within namespaces too, and its `#define` lines."""
    lines = meaning(text).splitlines()
    macros = [Piece(line) for line in lines if line.startswith("#define")]
    return (*macros, *_pieces("\n".join(line for line in lines if not line.startswith("#"))))


def _without_template(text: str) -> str:
    """A definition without the `template <...>` in front of it."""
    while text.startswith("template"):
        at = text.index("<") + 1
        depth = 1
        while depth:
            depth += (text[at] == "<") - (text[at] == ">")
            at += 1
        text = text[at:].lstrip()
    return text


def _pieces(text: str) -> Iterator[Piece]:
    at = 0
    while at < len(text):
        if opened := _NAMESPACE.match(text, at):
            end = _end(text, opened.end() - 1)
            yield from _pieces(text[opened.end() : end - 1])
        else:
            end = _end_of_statement(text, at)
            if piece := " ".join(text[at:end].split()).strip("; "):
                yield Piece(piece)
        at = end


def _end_of_statement(text: str, at: int) -> int:
    """The place after a statement: after its semicolon, or the brace that closes its block."""
    while at < len(text):
        if text[at] in "([{":
            block = text[at] == "{"
            at = _end(text, at)
            if block and not re.match(r"\s*[;,)(.]", text[at:]):
                return at
        elif text[at] == '"':
            at = _after_string(text, at)
        elif text[at] == ";":
            return at + 1
        else:
            at += 1
    return at


def _end(text: str, at: int) -> int:
    """One past the bracket that closes the one at `at`."""
    depth = 0
    while at < len(text):
        if text[at] == '"':
            at = _after_string(text, at)
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
        if not depth:
            return at
    return at


def _after_string(text: str, at: int) -> int:
    found = _STRING.match(text, at)
    return found.end() if found else at + 1
