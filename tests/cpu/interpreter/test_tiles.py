"""AMX: the interpreter on the emulated processor, this processor's own instructions where it has
them, and the plain statement, over shapes that leave rows and columns free."""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cpu import bochs
from tests.cpu.interpreter import semantics
from tests.cpu.interpreter.native import Code, call, may_use_tiles
from tests.cpu.interpreter.operands import bfloat16_lane, same
from tests.seed import draw

pytestmark = pytest.mark.x86_64

Bits = NDArray[np.uint32]
SIGNS = {
    "tdpbssd": (True, True),
    "tdpbsud": (True, False),
    "tdpbusd": (False, True),
    "tdpbuud": (False, False),
}
PRODUCTS = ("tdpbf16ps", *SIGNS)
SHAPES = [(16, 16, 16), (1, 1, 1), (16, 3, 5), (7, 16, 2), (2, 9, 16)]
"""Rows, columns, and groups of four bytes along K."""
STRIDE = 20
"""Dwords from row to row in memory."""
SOURCE = """
#include <immintrin.h>
#define PRODUCT(name)                                                                   \\
  extern "C" void name(const void* config, void* total, const void* a, const void* b,  \\
                       const void* old, void* seen) {                                   \\
    _tile_loadconfig(config);                                                           \\
    _tile_loadd(7, old, 80);                                                            \\
    _tile_loadd(0, total, 80);                                                          \\
    _tile_loadd(1, a, 80);                                                              \\
    _tile_stream_loadd(2, b, 80);                                                       \\
    asm volatile(#name " %tmm2, %tmm1, %tmm0");                                         \\
    _tile_zero(7);                                                                      \\
    _tile_stored(0, total, 80);                                                         \\
    _tile_stored(7, (void*)old, 80);                                                    \\
    _tile_storeconfig(seen);                                                            \\
    _tile_release();                                                                    \\
  }
PRODUCT(tdpbf16ps) PRODUCT(tdpbssd) PRODUCT(tdpbsud) PRODUCT(tdpbusd) PRODUCT(tdpbuud)
extern "C" void configure(const void* config) { _tile_loadconfig(config); _tile_release(); }
extern "C" void configure_only(const void* config) { _tile_loadconfig(config); }
extern "C" void zero_without_configuration() { _tile_zero(3); }
extern "C" void store_configuration(void* config) { _tile_storeconfig(config); }
extern "C" void multiply(const void* config) {
  _tile_loadconfig(config);
  _tile_dpbf16ps(0, 1, 2);
  _tile_release();
}
"""


@pytest.fixture(scope="module")
def code() -> Code:
    with tempfile.TemporaryDirectory() as folder:
        return Code(SOURCE, Path(folder))


def configuration(tiles: dict[int, tuple[int, int]], palette: int = 1) -> bytearray:
    """The operand of ldtilecfg: rows and bytes per row of some tiles."""
    config = bytearray(64)
    config[0] = palette
    for tile, (rows, row_bytes) in tiles.items():
        struct.pack_into("<H", config, 16 + 2 * tile, row_bytes)
        config[48 + tile] = rows
    return config


def of_product(rows: int, columns: int, groups: int) -> bytearray:
    tiles = {0: (rows, 4 * columns), 1: (rows, 4 * groups), 2: (groups, 4 * columns), 7: (2, 8)}
    return configuration(tiles)


def address(data: bytearray | Bits) -> int:
    return np.frombuffer(data, np.uint8).ctypes.data


@dataclass
class Product:
    """Operands in memory; `total` becomes the result."""

    name: str
    shape: tuple[int, int, int]
    total: Bits
    a: Bits
    b: Bits

    @classmethod
    def drawn(cls, name: str, shape: tuple[int, int, int], rng: random.Random) -> Product:
        total, a, b = (np.zeros((16, STRIDE), np.uint32) for _ in range(3))
        for row in range(16):
            for column in range(STRIDE):
                lane = (rng.getrandbits(32) for _ in range(3))
                if name == "tdpbf16ps" and rng.random() < 0.05:
                    lane = iter(bfloat16_lane(rng))
                elif name == "tdpbf16ps":
                    lane = (_float(rng), _pair(rng), _pair(rng))  # type: ignore[assignment]
                total[row, column], a[row, column], b[row, column] = lane
        return cls(name, shape, total, a, b)

    def stated(self) -> Bits:
        """`total` after the product."""
        rows, columns, groups = self.shape
        result = self.total.copy()
        for m in range(rows):
            for n in range(columns):
                left = [int(x) for x in self.a[m, :groups]]
                right = [int(x) for x in self.b[:groups, n]]
                total = int(self.total[m, n])
                if self.name == "tdpbf16ps":
                    result[m, n] = semantics.tdpbf16ps(total, left, right)
                    continue
                for x, y in zip(left, right, strict=True):
                    total = semantics.integer_dot(total, x, y, signed=SIGNS[self.name])
                result[m, n] = total
        return result


def _pair(rng: random.Random) -> int:
    """Two bfloat16 between 1/4 and 4 in size."""
    one, two = (rng.choice([0, 0x8000]) | rng.randrange(0x3E80, 0x4080) for _ in range(2))
    return one | two << 16


def _float(rng: random.Random) -> int:
    return rng.choice([0, semantics.SIGN]) | rng.randrange(0x3E800000, 0x42000000)


def check(run: Callable[..., object], code: Code, name: str) -> None:
    rng = draw(name)
    for shape in SHAPES:
        product = Product.drawn(name, shape, rng)
        expected = product.stated()
        config, seen = of_product(*shape), bytearray(64)
        old = np.full((2, STRIDE), 7, np.uint32)
        operands = (config, product.total, product.a, product.b, old, seen)
        run(code.address(name), *map(address, operands))
        for wanted, found in zip(expected.flat, product.total.flat, strict=True):
            assert same(int(wanted), int(found)) if name == "tdpbf16ps" else wanted == found, shape
        assert (old[:, :2] == 0).all()
        assert (old[:, 2:] == 7).all()
        assert seen == config


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_interpreter_computes_what_is_stated(
    name: str, code: Code, processor: bochs.Processor
) -> None:
    check(processor.call, code, name)


@pytest.mark.parametrize("isa", ["amx"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_this_processor_computes_what_is_stated(name: str, isa: str, code: Code) -> None:
    if not may_use_tiles():
        pytest.skip("this processor has no AMX, or the kernel does not let us use it")
    check(call, code, name)


FULL = {0: (16, 64), 1: (16, 64), 2: (16, 64)}
REFUSED = {
    "palette": configuration(FULL, palette=2),
    "rows": configuration({0: (17, 64)}),
    "bytes": configuration({0: (16, 65)}),
    "empty rows": configuration({0: (0, 64)}),
    "empty columns": configuration({0: (16, 0)}),
    "reserved": configuration({12: (0, 4)}),
}
UNEQUAL = {
    "rows": configuration({**FULL, 0: (15, 64)}),
    "columns": configuration({**FULL, 0: (16, 60)}),
    "groups": configuration({**FULL, 2: (15, 64)}),
    "no dwords": configuration({0: (16, 62), 1: (16, 64), 2: (16, 62)}),
    "not configured": configuration({0: (16, 64), 1: (16, 64)}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_configuration_faults(case: str, code: Code, processor: bochs.Processor) -> None:
    with pytest.raises(RuntimeError, match="refused at"):
        processor.call(code.address("configure"), address(REFUSED[case]))


@pytest.mark.parametrize("case", UNEQUAL)
def test_unequal_tiles_fault(case: str, code: Code, processor: bochs.Processor) -> None:
    with pytest.raises(RuntimeError, match="refused at"):
        processor.call(code.address("multiply"), address(UNEQUAL[case]))


def test_a_tile_without_a_configuration_faults(code: Code, processor: bochs.Processor) -> None:
    with pytest.raises(RuntimeError, match="refused at"):
        processor.call(code.address("zero_without_configuration"))


def test_tiles_must_be_released(code: Code, processor: bochs.Processor) -> None:
    """A thread with live tiles pays for them at every switch."""
    config = configuration(FULL)
    with pytest.raises(RuntimeError, match="without tilerelease"):
        processor.call(code.address("configure_only"), address(config))
    seen = bytearray(b"x" * 64)
    processor.call(code.address("store_configuration"), address(seen))  # each call begins afresh
    assert seen == bytearray(64)


def test_palette_0_releases_tiles(code: Code, processor: bochs.Processor) -> None:
    config = configuration({}, palette=0)
    processor.call(code.address("configure_only"), address(config))


def test_equal_tiles_do_not_fault(code: Code, processor: bochs.Processor) -> None:
    """The control of the tests above."""
    config = configuration(FULL)
    processor.call(code.address("multiply"), address(config))
