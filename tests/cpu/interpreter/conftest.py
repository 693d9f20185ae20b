from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cpu import bochs
from tests.cpu.interpreter.library import Interpreter


@pytest.fixture(scope="session")
def interpreter() -> Interpreter:
    with tempfile.TemporaryDirectory() as folder:
        return Interpreter(Path(folder))


@pytest.fixture(scope="session")
def processor(interpreter: Interpreter) -> Iterator[bochs.Processor]:
    """The one emulated processor of this process."""
    with tempfile.TemporaryDirectory() as folder:
        processor = bochs.Processor(bochs.load(Path(folder)), interpreter)
    yield processor
    processor.close()
