"""A plugin of pytest that runs one level of the host kernels on an emulated processor.

`pytest -p tests.cpu.emulated_isa --emulated-isa=amx tests/ops` runs the tests there that have an
`isa`, with `cpu:amx` alone: its kernels, entered through their own tables, run in Bochs, and
everything around them as always. At the end it prints how often each was called, and how many
instructions the interpreter executed.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from hk_backend import _cpu
from hk_backend.devices.cpu.isas import LIMITS
from tests.cpu import bochs
from tests.cpu.interpreter.library import Interpreter
from tests.processes import finished

LEVELS = ("avx512", "avx512_bf16", "amx")
"""The emulated processor executes these; the kernels of each are in a namespace of its name."""
INTEGER, FLOAT = ctypes.c_int64, ctypes.c_float
Signature = tuple[Any, ...]
"""A function's result and its arguments."""
TABLES: dict[str, dict[str, Signature | None]] = {
    "attention_kernels": {
        "rows_per_block": None,
        "keys_per_panel": None,
        "scratch_bytes": (INTEGER, INTEGER, INTEGER),
        "run": (None, INTEGER, INTEGER, INTEGER, INTEGER),
        "join": (None, INTEGER, INTEGER, INTEGER, INTEGER),
        "merge": (None, INTEGER, INTEGER, INTEGER),
    },
    "linear_kernels": {
        "panel_columns": None,
        "skinny_rows": (INTEGER, INTEGER),
        "takes_in_place": (INTEGER, INTEGER, INTEGER),
        "panel_bytes": (INTEGER, INTEGER, INTEGER),
        "pack": (None, INTEGER, INTEGER, INTEGER),
        "row_max": (FLOAT, INTEGER, INTEGER),
        "prepare": (None, INTEGER, INTEGER, INTEGER, FLOAT),
        "scratch_bytes": (INTEGER, INTEGER),
        "multiply": (None, INTEGER, INTEGER, INTEGER, INTEGER),
        "multiply_skinny": (None, INTEGER, INTEGER, INTEGER, INTEGER),
        "look_up": (None, INTEGER, INTEGER, INTEGER),
    },
    "quantize_kernels": {
        "row_maxima": (None, INTEGER, INTEGER, INTEGER),
        "fp8_scale": (FLOAT, INTEGER, FLOAT),
        "quantize_row": (None, INTEGER, INTEGER),
    },
}
"""The slots of `AttentionKernels`, `LinearKernels` and `QuantizeKernels` (csrc/cpu, *_args.hpp) in
their order; a number has no signature."""
READ, WRITE = 1, 2

_calls: Counter[str] = Counter()
_kept: list[Any] = []
"""Objects that the kernels' tables point to."""
_interpreter: list[Interpreter] = []
_exit = [0]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--emulated-isa", choices=LEVELS, required=True, help="the kernels' level")
    parser.addoption("--emulated-sample", type=int, help="so many tests, of each module alike")


def pytest_configure(config: pytest.Config) -> None:
    level = config.getoption("--emulated-isa")
    with tempfile.TemporaryDirectory() as folder:
        _interpreter.append(Interpreter(Path(folder)))
        processor = bochs.Processor(bochs.load(Path(folder)), _interpreter[0])
    for table, slots in TABLES.items():
        address = address_of(f"hk::cpu::{level}::{table}", 8 * len(slots))
        redirect(address, slots, processor)
    native = [isa for isa in _cpu.available_isas() if isa != level]
    _cpu.available_isas = lambda: [level, *native]
    LIMITS.clear()  # a limit of this process does not hold the emulated processor
    allow_dot_products()


def allow_dot_products() -> None:
    """Let kernels use VNNI, which the emulated processor has, whether this one has it or not."""
    name = "hk::cpu::(anonymous namespace)::dot_products"
    used = ctypes.c_bool.from_address(address_of(name, 1))

    def use_dot_products(use: bool) -> bool:
        before, used.value = used.value, use
        return before

    use_dot_products(True)
    _cpu.use_dot_products = use_dot_products


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The level's tests, or a sample of them."""
    level = config.getoption("--emulated-isa")
    own = [item for item in items if isa_of(item) == level]
    count = config.getoption("--emulated-sample")
    items[:] = evenly(own, count) if count else own


def evenly(items: list[pytest.Item], count: int) -> list[pytest.Item]:
    """`count` of the tests, as many of each module as of the others, evenly spaced in it."""
    modules = [list(tests) for _, tests in itertools.groupby(items, key=lambda item: item.path)]
    chosen: list[pytest.Item] = []
    for left, tests in zip(range(len(modules), 0, -1), sorted(modules, key=len), strict=True):
        taken = min((count - len(chosen)) // left, len(tests))
        chosen += [tests[index * len(tests) // taken] for index in range(taken)]
    return chosen


def isa_of(item: pytest.Item) -> Any:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("isa") if callspec else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    calls = ", ".join(f"{name} {count}" for name, count in sorted(_calls.items()))
    terminalreporter.write_line(f"emulated calls: {calls}")
    terminalreporter.write_line(f"interpreted instructions: {_interpreter[0].executed}")


def pytest_sessionfinish(exitstatus: int) -> None:
    _exit[0] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Ends the process before bochscpu's binding reports what it leaks."""
    sys.stdout.flush()
    os._exit(_exit[0])


def redirect(table: int, slots: dict[str, Signature | None], processor: bochs.Processor) -> None:
    """Let a table's slots call the functions that they hold on `processor`."""
    page, size = table // bochs.PAGE * bochs.PAGE, 2 * bochs.PAGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(size), READ | WRITE):
        raise OSError(ctypes.get_errno(), "the kernels' tables stay read-only")
    for index, (name, signature) in enumerate(slots.items()):
        if signature is not None:
            slot = ctypes.c_uint64.from_address(table + 8 * index)
            call = emulated(name, slot.value, signature, processor)
            stub = ctypes.CFUNCTYPE(*signature)(call)
            _kept.append(stub)
            slot.value = ctypes.cast(stub, ctypes.c_void_p).value or 0


_one_at_a_time = Lock()


def emulated(
    name: str, function: int, signature: Signature, processor: bochs.Processor
) -> Callable[..., Any]:
    """The function at an address, on `processor`.

    A fault there ends this process: its caller is C++, which would not see an exception.
    """
    result, *kinds = signature

    def call(*arguments: Any) -> Any:
        _calls[name] += 1
        pairs = list(zip(kinds, arguments, strict=True))
        integers = [value for kind, value in pairs if kind is INTEGER]
        value = next((value for kind, value in pairs if kind is FLOAT), 0.0)
        try:
            with _one_at_a_time:
                integer, number = processor.call(function, *integers, value=value)
        except BaseException as error:
            os.write(2, f"the emulated processor: {error}\n".encode())
            os._exit(70)
        if result is None:
            return None
        return number if result is FLOAT else integer

    return call


def address_of(name: str, size: int) -> int:
    """The address in this process of a symbol of the extension that has so many bytes.

    Raises:
        pytest.UsageError: the extension has no such symbol.
    """
    listing = finished("nm", "-CS", _cpu.__file__, check=True).stdout
    found = [line.split()[:2] for line in listing.splitlines() if line.endswith(f" {name}")]
    if len(found) != 1:
        raise pytest.UsageError(f"{_cpu.__file__} has {len(found)} symbols {name}, not one")
    offset, found_size = (int(number, 16) for number in found[0])
    assert found_size == size, f"{name} has {found_size} bytes, not the {size} of its slots here"
    maps = Path("/proc/self/maps").read_text().splitlines()
    return offset + min(int(line.split("-")[0], 16) for line in maps if _cpu.__file__ in line)
