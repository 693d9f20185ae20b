"""The grammar of the pseudo-code, for Lark."""

from __future__ import annotations

from functools import cache

from lark import Lark, Token, Tree


@cache
def parser() -> Lark:
    return Lark.open("grammar.lark", rel_to=__file__, start="block", parser="lalr")


@cache
def parsed(text: str) -> Tree[Token]:
    return parser().parse(text)
