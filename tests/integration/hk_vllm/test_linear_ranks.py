"""Layers that eight ranks share."""

from __future__ import annotations

import pytest

from tests.integration.shared.linear.ranks import *  # noqa: F403

pytestmark = pytest.mark.usefixtures("linear_route")
