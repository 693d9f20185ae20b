"""Calls functions of this process on the Bochs emulator's processor, which has AVX-512.

The emulated processor sees this process's own memory at its own addresses, so a function runs on
the very arguments that its caller made. It may call others, but not the kernel. Instructions of
AVX512-BF16, VNNI and AMX, which it lacks, raise its exception 6; the interpreter handles that.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.cpu.interpreter.library import Interpreter

PAGE, GIGABYTE = 1 << 12, 1 << 30
TABLES = 900 * GIGABYTE
"""The emulated physical address of the page tables; memory has the gigabytes from 0 on."""
MOST_TABLES, STACK = 64, 1 << 20
PRESENT, LARGE = 0x7, 0x80
THUNK = bytes.fromhex("f30f100538000000 ffd0 f30f11052e000000 f4")
"""Code: movss xmm0, [64]; call rax; movss [64], xmm0; hlt."""
FLOAT, DESCRIPTORS, TASK, GATES = 64, 128, 256, 512
"""Offsets in the thunk's page: the float argument, the GDT, the TSS and the IDT."""
INVALID_OPCODE, GATE = 6, 16
INTEGERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
CODE, DATA, BUSY_TASK = (0xA09B, 0x10), (0xC093, 0x18), (0x8B, 0x20)
"""Attributes and selectors of segments."""
ARCH_PRCTL, ARCH_GET_FS = 158, 0x1003


def load(folder: Path) -> Any:
    """Import `bochscpu`; its wheel wants two names of glibc 2.38, which an older one gets here."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "__isoc23_strtoull"):
        source, library = Path(__file__).with_name("glibc_2_38.c"), folder / "missing.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    import_module("bochscpu.memory")
    return import_module("bochscpu")


class Processor:
    """One emulated processor; one call at a time."""

    def __init__(self, bochscpu: Any, interpreter: Interpreter) -> None:
        self._bochs = bochscpu
        self._interpreter = interpreter
        self._tables, self._table_address = _memory(MOST_TABLES * PAGE)
        self._stack, stack = _memory(STACK)
        self._stack_top = stack + STACK - PAGE
        self._code, self._thunk = _memory(PAGE)
        self._code[: len(THUNK)] = THUNK
        self._handler_stack, handler_stack = _memory(STACK)
        self._handler_top = handler_stack + STACK
        self._install_handler()
        for table in range(MOST_TABLES):
            bochscpu.memory.page_insert(TABLES + table * PAGE, self._table_address + table * PAGE)
        self._gigabytes: list[int] = []  # this process's, by the emulated ones
        self._upper: dict[int, int] = {}  # the table for each 512 of them
        self._fault = ""
        self._session = bochscpu.Session()
        self._session.missing_page_handler = self._insert
        self._hook = bochscpu.Hook()
        self._hook.hlt = self._halt
        self._hook.exception = self._stop

    def call(self, function: int, *arguments: int, value: float = 0.0) -> tuple[int, float]:
        """Call the function at an address; returns what it leaves in rax and in xmm0.

        Args:
            arguments: integers and addresses, at most six.
            value: the one float argument, if there is any.

        Raises:
            RuntimeError: the processor met an exception, an unknown instruction for one, or the
                function left tiles configured, with which a thread pays at every switch.
        """
        self._map()
        self._interpreter.release_tiles()
        place = ctypes.c_float.from_address(self._thunk + FLOAT)
        place.value = value
        cpu = self._session.cpu
        cpu.state = self._state(function, arguments)
        self._fault = ""
        self._session.run([self._hook])
        if self._fault:
            raise RuntimeError(self._fault)
        if self._interpreter.tiles_configured:
            raise RuntimeError("the function returned without tilerelease")
        return cpu.rax, place.value

    def close(self) -> None:
        """End the session: bochscpu's binding cannot do it when the interpreter of Python ends."""
        del self._session, self._hook

    def _state(self, function: int, arguments: tuple[int, ...]) -> Any:
        """64-bit mode with paging, SSE, AVX and AVX-512 switched on, about to run the thunk."""
        state = self._bochs.State()
        state.cr0, state.cr3, state.cr4 = 0x80050033, TABLES, 0x50620
        state.efer, state.xcr0, state.rflags = 0xD01, 0xE7, 2
        state.mxcsr, state.mxcsr_mask, state.fpcw, state.fptw = 0x1F80, 0xFFFF, 0x37F, 0xFFFF
        thread = ctypes.c_uint64()
        ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_GET_FS, ctypes.byref(thread))
        state.cs, state.fs = self._segment(*CODE), self._segment(*DATA, thread.value)
        state.ds = state.es = state.ss = state.gs = self._segment(*DATA)
        state.tr = self._segment(*BUSY_TASK, self._thunk + TASK)
        state.gdtr = self._table(DESCRIPTORS, 4 * 8)
        state.idtr = self._table(GATES, (INVALID_OPCODE + 1) * GATE)
        state.rip, state.rsp, state.rax = self._thunk, self._stack_top, function
        for register, argument in zip(INTEGERS, arguments, strict=False):
            setattr(state, register, argument % 2**64)
        return state

    def _segment(self, attributes: int, selector: int, base: int = 0) -> Any:
        segment = self._bochs.Segment()
        segment.attr, segment.selector, segment.base = attributes, selector, base
        segment.limit, segment.present = 0xFFFFFFFF, True
        return segment

    def _table(self, offset: int, size: int) -> Any:
        table = self._bochs.GlobalSegment()
        table.base, table.limit = self._thunk + offset, size - 1
        return table

    def _install_handler(self) -> None:
        """Let exception 6 enter the interpreter, on a stack of its own (IST 1)."""
        for attributes, selector in (CODE, DATA):
            high, low = divmod(attributes, 1 << 8)
            descriptor = 0xFFFF | low << 40 | (high | 0xF) << 48
            struct.pack_into("<Q", self._code, DESCRIPTORS + selector, descriptor)
        struct.pack_into("<Q", self._code, TASK + 36, self._handler_top)
        handler, interrupt_gate = self._interpreter.handler, 0x8E
        struct.pack_into(
            "<HHBBHII",
            self._code,
            GATES + INVALID_OPCODE * GATE,
            handler & 0xFFFF,
            CODE[1],
            1,
            interrupt_gate,
            handler >> 16 & 0xFFFF,
            handler >> 32,
            0,
        )

    def _map(self) -> None:
        """Map every gigabyte in which this process has memory as one large page."""
        for line in Path("/proc/self/maps").read_text().splitlines():
            first, end = (int(address, 16) for address in line.split()[0].split("-"))
            if end > 1 << 47:
                continue  # the kernel's own
            for gigabyte in range(first // GIGABYTE, (end - 1) // GIGABYTE + 1):
                if gigabyte not in self._gigabytes:
                    self._map_gigabyte(gigabyte)

    def _map_gigabyte(self, gigabyte: int) -> None:
        upper, entry = divmod(gigabyte, 512)
        if upper not in self._upper:
            self._upper[upper] = PAGE * (len(self._upper) + 1)
            self._enter(8 * upper, TABLES + self._upper[upper] | PRESENT)
        self._enter(
            self._upper[upper] + 8 * entry, len(self._gigabytes) * GIGABYTE | PRESENT | LARGE
        )
        self._gigabytes.append(gigabyte)

    def _enter(self, offset: int, entry: int) -> None:
        ctypes.c_uint64.from_address(self._table_address + offset).value = entry

    def _insert(self, address: int) -> None:
        """Insert a page of memory that Bochs has not met."""
        gigabyte, offset = divmod(address // PAGE * PAGE, GIGABYTE)
        own = self._gigabytes[gigabyte] * GIGABYTE + offset
        self._bochs.memory.page_insert(address // PAGE * PAGE, own)

    def _stop(self, session: Any, _: int, vector: int, code: int) -> None:
        if vector == INVALID_OPCODE or self._fault:
            return  # the interpreter's, or what follows from the first
        where = f"at {session.cpu.rip:#x}, address {session.cpu.cr2:#x}"
        self._fault = f"exception {vector} (error {code:#x}) {where}"
        session.stop()

    def _halt(self, session: Any, _: int) -> None:
        """Stop at the thunk's end, or at an instruction that the interpreter refuses."""
        if not self._thunk <= session.cpu.rip < self._thunk + PAGE:
            [rip] = struct.unpack_from("<Q", self._handler_stack, STACK - 5 * 8)
            code = ctypes.string_at(rip, 12).hex(" ")
            self._fault = f"exception {INVALID_OPCODE}: refused at {rip:#x}: {code}"
        session.stop()


def _memory(size: int) -> tuple[mmap.mmap, int]:
    """A memory of zeros, and its address."""
    memory = mmap.mmap(-1, size)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))
