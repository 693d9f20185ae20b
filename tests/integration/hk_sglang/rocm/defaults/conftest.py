"""What the tests of the matrix share."""

from __future__ import annotations

from tests.integration.hk_sglang.rocm.defaults.sessions import sessions

__all__ = ["sessions"]
