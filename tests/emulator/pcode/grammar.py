"""The grammar of the pseudo-code, for Lark."""

from __future__ import annotations

import json
from functools import cache

from lark import Lark, Token, Tree

from tests.emulator.pcode.functions import LEVELS

GRAMMAR = r"""
block: (_statement | ";")*
_statement: _compound | assignment | change | stop | give
_compound: conditional | loop | declaration
conditional: "if" expression "then" block ("elsif" expression "then" block)* ["else" block] "endif"
loop: "for" NAME "in" expression ":" expression "do" block "endfor"
declaration: "declare" NAME ":" TYPE ["[" expression "]"]
assignment: (postfix "=")+ (expression | function)
change: postfix CHANGE expression
stop: "break"
give: "return" expression
function: "lambda" "(" NAME ("," NAME)* ")" "(" (expression | body) ")"
body: (_compound ";"?)+ -> block

?expression: binary0 | binary0 "?" expression ":" expression -> choice
%s
?unary: postfix | PREFIX unary -> prefixed
?postfix: _atom | _atom suffix+
suffix: "." NAME -> typed
      | "[" expression "]" -> element
      | "[" expression ":" expression "]" -> bits
      | "[" expression "+:" expression "]" -> bits_from
_atom: NAME | NUMBER | SIZED | "(" expression ")" | cast | concatenation | call
cast: CAST "(" expression ")"
concatenation: "{" expression ("," expression)* "}"
call: NAME "(" expression ("," expression)* ")"

SIZED.4: /\d+'(0x[0-9a-fA-F]+|\d+(\.\d+)?)[UILF]*/
CAST.3: /\d+'(BF|[UIFB])(?=\()/
TYPE.2: /\d+'(BF|[UIFB])/
NUMBER.1: /0x[0-9a-fA-F]+[UL]*|\d+\.\d+F?|\d+[UL]*F?/
NAME: /[A-Za-z_]\w*/
CHANGE: "+=" | "-="
PREFIX: "!" | "~" | "+" | "-"
%%ignore /\s+|\/\/[^\n]*/
"""


@cache
def parser() -> Lark:
    rules = [f"?binary{len(LEVELS)}: unary"]
    for n, symbols in enumerate(LEVELS):
        rules.append(f"?binary{n}: binary{n + 1} | binary{n} OPERATOR{n} binary{n + 1} -> binary")
        first = 1 if min(map(len, symbols)) == 2 else -1  # "<<" before "<", and "+:" before "+"
        rules.append(f"OPERATOR{n}.{first}: " + " | ".join(map(json.dumps, symbols)))
    return Lark(GRAMMAR % "\n".join(rules), start="block", parser="lalr")


@cache
def parsed(text: str) -> Tree[Token]:
    return parser().parse(text)
