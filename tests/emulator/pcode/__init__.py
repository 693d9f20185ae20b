"""Executes the pseudo-code of AMD's ISA guide, for one lane: what an instruction should compute.

The text comes from tinygrad's wheel (`PCODE`, machine-extracted from the guides); this interpreter
and the emulator's handlers have nothing in common. Numbers are kept as bits with a type:
("u" | "i" | "f" | "bf", width). Float arithmetic is numpy's, fma exact through Fraction.
"""

from tests.emulator.pcode.interpreter import execute
from tests.emulator.pcode.numbers import Value, round_fraction
from tests.emulator.pcode.state import State

__all__ = ["State", "Value", "execute", "round_fraction"]
