"""Each check of the emulator: correct programs without a finding, broken twins with the finding."""

from tests.emulator.twins import (
    control,
    flat,
    global_memory,
    in_flight,
    lds,
    registers,
    wait_states,
)

ALL = [
    *in_flight.TWINS,
    *registers.TWINS,
    *global_memory.TWINS,
    *lds.TWINS,
    *flat.TWINS,
    *control.TWINS,
    *wait_states.TWINS,
]
