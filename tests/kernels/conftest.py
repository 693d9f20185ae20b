from __future__ import annotations

import pytest

from hk_backend.lab.toolchain import compiler
from hk_backend.lab.toolchain.compiler import Toolchain


@pytest.fixture(scope="session")
def tools() -> Toolchain:
    return compiler.find()
