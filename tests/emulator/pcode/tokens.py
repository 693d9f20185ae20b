"""The tokens of the pseudo-code."""

from __future__ import annotations

import re
from functools import lru_cache

from tests.emulator.pcode.numbers import NotExecutable

_TOKEN = re.compile(
    r"\s*(?:(?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?)[UILF]*)"
    r"|(?P<cast>\d+'(?:BF|[UIFB])(?=\())"
    r"|(?P<type>\d+'(?:BF|[UIFB]))"
    r"|(?P<number>0x[0-9a-fA-F]+[UL]*|\d+\.\d+F?|\d+[UL]*F?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\+:|\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|[-+*/%&|^~!<>=?:()\[\]{},.;]))"
)

_AHEAD = 2
"""How far the interpreter peeks past the token where it is."""


@lru_cache(maxsize=4096)
def tokens_of(text: str) -> tuple[tuple[str, str], ...]:
    """As many empty tokens at the end as the interpreter may look past it."""
    text = re.sub(r"//[^\n]*", "", text)
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise NotExecutable(f"no token at {text[at : at + 20]!r}")
        tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
        at = match.end()
    return (*tokens, *[("", "")] * _AHEAD)
