from __future__ import annotations

import pytest

from hk_backend.kernels import toolchain
from hk_backend.kernels.toolchain import Toolchain


@pytest.fixture(scope="session")
def tools() -> Toolchain:
    return toolchain.find()
