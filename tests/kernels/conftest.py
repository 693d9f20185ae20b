from __future__ import annotations

import pytest

from hk_backend.kernels.toolchain import compiler
from hk_backend.kernels.toolchain.compiler import Toolchain


@pytest.fixture(scope="session")
def tools() -> Toolchain:
    return compiler.find()
