"""A process that serves on the host keeps what it frees."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from hk_backend.engine import host_memory
from hk_backend.engine.host_memory import TUNABLES, USERS_CHOICE, keep_freed_memory

FAULTS = """
import ctypes
import resource
import sys

from hk_backend.engine.host_memory import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
MIB = 1 << 20

def layer():
    buffer = libc.malloc(8 * MIB)
    ctypes.memset(buffer, 1, 8 * MIB)
    libc.free(buffer)

libc.mallopt(-3, 128 << 10) if sys.argv[1] == "trim" else None
layer()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    layer()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""A process that allocates, writes and frees 8 MiB ten times, and prints its page faults.

"trim": with glibc's first threshold, which no earlier buffer has raised.
"""
PAGES = 8 << 8


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*USERS_CHOICE, TUNABLES):
        monkeypatch.delenv(name, raising=False)
    keep_freed_memory.cache_clear()
    yield
    keep_freed_memory.cache_clear()


def faults(how: str) -> int:
    command = [sys.executable, "-c", FAULTS, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_pages_are_not_mapped_anew() -> None:
    assert faults("trim") >= 10 * PAGES
    assert faults("keep") < PAGES


@pytest.mark.parametrize(
    ("name", "value"),
    [*((name, "131072") for name in USERS_CHOICE), (TUNABLES, "glibc.malloc.trim_threshold=1")],
)
def test_the_users_choice_stays(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory.ctypes, "CDLL", None)  # not asked for
    monkeypatch.setenv(name, value)
    assert not keep_freed_memory()


def test_a_library_without_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory.ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()
