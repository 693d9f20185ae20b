"""The pseudo-code of AMD's ISA guide, executed."""

from tests.emulator.pcode.interpreter import State, execute
from tests.emulator.pcode.numbers import Value

__all__ = ["State", "Value", "execute"]
