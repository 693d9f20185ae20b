"""A digest of everything about a kernel that decides what a launch of it does.

Two kernels with the same instructions, descriptor, arguments and launch share a digest, whatever
their names are: what is proved of one is proved of the other. A check that is not about a type may
ask for the digest without types: then the fp16 kernel shares the digest of its bf16 twin. A kernel
whose result another one completes has that one's digest in its own.
"""

from __future__ import annotations

import functools
import hashlib

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.kernels.masks import PARTS
from hk_backend.lab.toolchain.elf import Elf

LENGTH = 16
"""Hexadecimal digits of every digest in a record."""
ENTRY_OFFSET = slice(16, 24)
"""Bytes of a kernel descriptor that say where its code lies in the file (LLVM's AMDGPU usage,
"Code Object V3 Kernel Descriptor", KERNEL_CODE_ENTRY_BYTE_OFFSET)."""


def digest(*parts: str | bytes) -> str:
    """Hexadecimal digits of a SHA-256 over `parts`, of which none runs into the next."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:LENGTH]


@functools.cache
def instructions(entry: KernelEntry) -> tuple[str, ...]:
    """The kernel's instructions as the emulator prints them, in order.

    Branches name the distance that they jump, so the kernel's place in its file does not matter.
    """
    text = _symbols(entry.code_object())[entry.symbol]
    return tuple(line for _, line in _emulator.disassemble(text, entry.arch))


@functools.cache
def _symbols(code_object: bytes) -> dict[str, bytes]:
    """The bytes of each symbol: read once for all kernels of a code object."""
    elf = Elf(code_object)
    found = {}
    for name, (address, size) in elf.symbols().items():
        for offset in elf.file.address_offsets(address, size):
            found[name] = code_object[offset : offset + size]
    return found


@functools.cache
def mnemonics(entry: KernelEntry) -> frozenset[str]:
    """The kernel's opcodes by name, as the emulator's semantics know them."""
    return frozenset(_bare(line.split()[0]) for line in instructions(entry))


def _bare(mnemonic: str) -> str:
    for encoding in ("_e32", "_e64", "_dpp", "_sdwa"):
        mnemonic = mnemonic.removesuffix(encoding)
    return mnemonic


@functools.cache
def kernel_digest(entry: KernelEntry, *, with_types: bool = True) -> str:
    """The digest of `entry`; `with_types=False` takes bf16 and fp16 for one type."""
    descriptor = bytearray(_symbols(entry.code_object())[f"{entry.symbol}.kd"])
    descriptor[ENTRY_OFFSET] = bytes(8)
    code = "\n".join(instructions(entry))
    if not with_types:
        code = code.replace("bf16", "f16")
    launch = (entry.arch, entry.grid, entry.block, entry.dynamic_lds, entry.tile)
    rest = (kernel_digest(other, with_types=with_types) for other in companions(entry))
    return digest(code, bytes(descriptor), repr(entry.arguments), repr(launch), *rest)


def companions(entry: KernelEntry) -> list[KernelEntry]:
    """The kernels without which `entry` has no result: the one that joins the parts it leaves."""
    if entry.facts.get("mask") not in PARTS:
        return []
    facts = {name: entry.facts[name] for name in ("dtype", "head_size")}
    found = catalogue(entry.arch).select("attention_merge", **facts)
    assert isinstance(found, KernelEntry), found
    return [found]
