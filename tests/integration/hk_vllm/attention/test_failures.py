"""The route is off, or HK breaks: the parent computes, and why is counted and said once."""

from __future__ import annotations

from tests.integration.shared.attention.failures import *  # noqa: F403
