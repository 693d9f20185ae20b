"""AVX512-BF16 and VNNI: the interpreter on the emulated processor, this processor's own
instructions where it has them, and the plain statement, in every form of operands."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cpu import bochs
from tests.cpu.interpreter import semantics
from tests.cpu.interpreter.encode import VECTORS
from tests.cpu.interpreter.library import Interpreter
from tests.cpu.interpreter.native import Code, call, processor_has
from tests.cpu.interpreter.operands import bfloat16_lane, float32, same
from tests.seed import draw

pytestmark = pytest.mark.x86_64

Bits = NDArray[np.uint32]
Function = Callable[..., None]
LENGTHS, OPERANDS, MASKS = (
    (16, 32, 64),
    ("register", "memory", "broadcast"),
    ("all", "mask", "zero"),
)
FORMS = list(itertools.product(VECTORS, LENGTHS, OPERANDS, MASKS))
ROUNDS = 6
SIGNED_BYTES, SIGNED_WORDS = (False, True), (True, True)
DOTS: dict[str, Callable[[int, int, int], int]] = {
    "vdpbf16ps": semantics.vdpbf16ps,
    "vpdpbusd": lambda c, a, b: semantics.integer_dot(c, a, b, signed=SIGNED_BYTES),
    "vpdpbusds": lambda c, a, b: semantics.integer_dot(c, a, b, signed=SIGNED_BYTES, saturate=True),
    "vpdpwssd": lambda c, a, b: semantics.integer_dot(c, a, b, bits=16, signed=SIGNED_WORDS),
    "vpdpwssds": lambda c, a, b: semantics.integer_dot(
        c, a, b, bits=16, signed=SIGNED_WORDS, saturate=True
    ),
}
SOURCE = """
#include <cstdint>
#define FORM(name, text)                                                             \\
  extern "C" void name(void* total, const void* a, const void* b, uint64_t mask) {   \\
    asm volatile(                                                                    \\
        "kmovq %3, %%k1; vmovups (%0), %%zmm30; vmovups (%1), %%zmm1;"               \\
        "vmovups (%2), %%zmm17;" text "; vmovups %%zmm30, (%0)"                      \\
        :                                                                            \\
        : "r"(total), "r"(a), "r"(b), "r"(mask)                                      \\
        : "memory", "xmm1", "xmm17", "xmm30", "k1");                                 \\
  }
"""


def name_of(name: str, length: int, operand: str, mask: str) -> str:
    return f"{name}_{length}_{operand}_{mask}"


def form(name: str, length: int, operand: str, mask: str) -> str:
    """A C++ function that executes one instruction."""
    bank = {16: "x", 32: "y", 64: "z"}[length]
    convert = name == "vcvtneps2bf16"
    target = {16: "x", 32: "x", 64: "y"}[length] if convert else bank
    memory = f"(%2)%{{1to{length // 4}%}}" if operand == "broadcast" else "(%2)"
    suffix = bank if convert and operand == "memory" and length < 64 else ""
    source = memory if operand != "register" else f"%%{bank}mm17"
    first = "" if convert else f"%%{bank}mm1,"
    masks = {"all": "", "mask": "%{%%k1%}", "zero": "%{%%k1%}%{z%}"}[mask]
    text = f"{name}{suffix} {source}, {first} %%{target}mm30{masks}"
    return f'FORM({name_of(name, length, operand, mask)}, "{text}")\n'


@pytest.fixture(scope="module")
def code() -> Code:
    with tempfile.TemporaryDirectory() as folder:
        return Code(SOURCE + "".join(form(*each) for each in FORMS), Path(folder))


def operands(name: str, rng: random.Random) -> tuple[Bits, Bits, Bits]:
    """16 lanes of the destination and of the two sources."""
    if name == "vdpbf16ps":
        total, a, b = zip(*(bfloat16_lane(rng) for _ in range(16)), strict=True)
    elif name.startswith("vcvt"):
        total, a, b = ([float32(rng) for _ in range(16)] for _ in range(3))
    else:
        extreme = (0, 0x7FFFFFFF, 0x80000000, 0x80808080, 0x7F7F7F7F, 0xFFFFFFFF, 0x80008000)
        draw_lane = [lambda: rng.choice(extreme), lambda: rng.randrange(1 << 32)]
        total, a, b = ([rng.choice(draw_lane)() for _ in range(16)] for _ in range(3))
    return tuple(np.array(lanes, np.uint32) for lanes in (total, a, b))  # type: ignore[return-value]


def stated(form: tuple[str, int, str, str], total: Bits, a: Bits, b: Bits, mask: int) -> list[int]:
    """The 64 bytes of the destination's register, in elements of the instruction's result."""
    name, length, operand, masked = form
    lanes = length // 4
    second = [int(b[0])] * lanes if operand == "broadcast" else [int(x) for x in b[:lanes]]
    old: list[int] = [int(x) for x in total]
    if name == "vcvtneps2bf16":
        results = [semantics.bfloat16(x) for x in second]
    elif name == "vcvtne2ps2bf16":
        results = [semantics.bfloat16(x) for x in (*second, *map(int, a[:lanes]))]
    else:
        results = [DOTS[name](c, int(x), y) for c, x, y in zip(old, a, second, strict=False)]
    if name.startswith("vcvt"):
        old = [int(x) for x in total.view(np.uint16)]
    for index, result in enumerate(results):
        if masked == "all" or mask >> index & 1:
            old[index] = result
        elif masked == "zero":
            old[index] = 0
    return old[: len(results)] + [0] * (len(old) - len(results))


def on_emulated(processor: bochs.Processor) -> Function:
    return lambda function, *arguments: processor.call(function, *arguments) and None


def check(run: Function, code: Code, name: str) -> None:
    rng = draw(name)
    for each in FORMS:
        for _ in range(ROUNDS if each[0] == name else 0):
            total, a, b = operands(name, rng)
            mask = rng.getrandbits(64)
            expected = stated(each, total, a, b, mask)
            before = [x.copy() for x in (total, a, b)]
            run(code.address(name_of(*each)), *(x.ctypes.data for x in (total, a, b)), mask)
            kind = np.uint16 if name.startswith("vcvt") else np.uint32
            for lane, (wanted, found) in enumerate(zip(expected, total.view(kind), strict=True)):
                equal = same if name == "vdpbf16ps" else int.__eq__
                assert equal(wanted, int(found)), (each, lane, hex(wanted), hex(found), before)


@pytest.mark.parametrize("name", VECTORS)
def test_the_interpreter_computes_what_is_stated(
    name: str, code: Code, processor: bochs.Processor, interpreter: Interpreter
) -> None:
    executed = interpreter.executed
    check(on_emulated(processor), code, name)
    assert interpreter.executed > executed


NATIVE = [(name, "avx512_bf16" if "bf16" in name else "avx512_vnni") for name in VECTORS]


@pytest.mark.parametrize(("name", "isa"), NATIVE)
def test_this_processor_computes_what_is_stated(name: str, isa: str, code: Code) -> None:
    if not processor_has(isa, "avx512vl", "avx512bw"):
        pytest.skip(f"this processor has no {isa}")
    check(call, code, name)
