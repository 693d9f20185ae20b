"""Generated encodings of the interpreter's instructions, most of them valid."""

from __future__ import annotations

import random

VECTORS = {  # prefix, opcode, whether ModRM alone names the source
    "vdpbf16ps": (2, 0x52, False),
    "vcvtneps2bf16": (2, 0x72, True),
    "vcvtne2ps2bf16": (3, 0x72, False),
    "vpdpbusd": (1, 0x50, False),
    "vpdpbusds": (1, 0x51, False),
    "vpdpwssd": (1, 0x52, False),
    "vpdpwssds": (1, 0x53, False),
}
TILES = {  # prefix, opcode, what ModRM holds
    "ldtilecfg": (0, 0x49, "memory"),
    "sttilecfg": (1, 0x49, "memory"),
    "tilerelease": (0, 0x49, "nothing"),
    "tilezero": (3, 0x49, "tile"),
    "tileloadd": (3, 0x4B, "rows"),
    "tileloaddt1": (1, 0x4B, "rows"),
    "tilestored": (2, 0x4B, "rows"),
    "tdpbf16ps": (2, 0x5C, "product"),
    "tdpbssd": (3, 0x5E, "product"),
    "tdpbsud": (2, 0x5E, "product"),
    "tdpbusd": (1, 0x5E, "product"),
    "tdpbuud": (0, 0x5E, "product"),
}
MAP_0F38 = 2


def displacement(rng: random.Random, size: int) -> bytes:
    most = 1 << 8 * size - 1
    number = rng.choice([0, 1, -1, most - 1, -most, rng.randrange(-most, most)])
    return number.to_bytes(size, "little", signed=True)


def memory(rng: random.Random, register: int, sib: bool) -> bytes:
    """ModRM and what follows it, for a memory operand."""
    mode, base = rng.randrange(3), 4 if sib else rng.randrange(8)
    parts = bytearray([mode << 6 | register << 3 | base])
    size = (0, 1, 4)[mode]
    if base == 4:
        parts.append(rng.randrange(256))
        base = parts[1] & 7
    if mode == 0 and base == 5:
        size = 4
    return bytes(parts) + (displacement(rng, size) if size else b"")


def spoil(rng: random.Random, number: int, bits: int) -> int:
    """Seldom another bit than is right."""
    return number ^ 1 << rng.randrange(bits) if rng.random() < 0.03 else number


def vector(rng: random.Random, name: str) -> bytes:
    prefix, opcode, alone = VECTORS[name]
    in_memory = rng.random() < 0.6
    extensions = rng.randrange(16)  # R, X, B and R', inverted
    free = 15 if alone else rng.randrange(16)
    mask = rng.choice([0, rng.randrange(8)])
    zeroing = rng.randrange(2) if mask else 0
    broadcast = rng.randrange(2) if in_memory else 0
    upper = 1 if alone else rng.randrange(2)  # V', inverted
    head = bytes(
        (
            0x62,
            spoil(rng, extensions << 4 | MAP_0F38, 4),
            spoil(rng, free << 3 | 4 | prefix, 8),
            spoil(
                rng,
                zeroing << 7 | rng.randrange(3) << 5 | broadcast << 4 | upper << 3 | mask,
                8,
            ),
            opcode,
        )
    )
    register = rng.randrange(8)
    if in_memory:
        return head + memory(rng, register, sib=False)
    return head + bytes([0xC0 | register << 3 | rng.randrange(8)])


def tile(rng: random.Random, name: str) -> bytes:
    prefix, opcode, kind = TILES[name]
    destination, second, first = rng.sample(range(8), 3)
    wide = 0b111 if kind == "product" or kind in ("nothing", "tile") else 0b100 | rng.randrange(4)
    free = 15 - first if kind == "product" else 15
    head = bytes(
        (
            0xC4,
            spoil(rng, wide << 5 | MAP_0F38, 8),
            spoil(rng, free << 3 | prefix, 8),
            opcode,
        )
    )
    if kind in ("memory", "rows"):
        return head + memory(rng, destination if kind == "rows" else 0, sib=kind == "rows")
    operands = {"nothing": 0, "tile": destination << 3, "product": destination << 3 | second}
    return head + bytes([spoil(rng, 0xC0 | operands[kind], 6)])


def instruction(rng: random.Random, name: str) -> bytes:
    return vector(rng, name) if name in VECTORS else tile(rng, name)
