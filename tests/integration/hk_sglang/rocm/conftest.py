"""What tests share whose processes take themselves for an MI355X's."""

from __future__ import annotations

from tests.integration.hk_sglang.rocm.defaults.sessions import sessions

__all__ = ["sessions"]
