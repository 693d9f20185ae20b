"""What vLLM computes faster, by measurement, is vLLM's."""

from __future__ import annotations

from tests.integration.shared.attention.measured_losses import *  # noqa: F403
