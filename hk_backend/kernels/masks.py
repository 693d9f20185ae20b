"""What the rows of a prefill see: the fact `mask` of the attention kernels' catalogue.

The names, and what a launch tells each, are those of csrc/kernels/attention/mask.hpp.
"""

from __future__ import annotations

NO_MASK = "none"
"""All keys, or all up to the row's own (causal)."""
WINDOW = "window"
"""Of those the last few; or a head has a sink; or both."""
CAPPED = "capped"
"""As `WINDOW`, or without; scores have a soft cap."""
ALIBI = "alibi"
"""As `WINDOW`, or without; scores have a bias that grows with the distance."""
PART = "part"
"""Of all keys those of a part: what the parts found is joined by another kernel."""
WINDOW_PART = "window_part"
"""The same of the last few."""
WINDOWED = (WINDOW, CAPPED, ALIBI, WINDOW_PART)
"""Those with windows; and with sinks, which parts leave to the kernel that joins them."""
PARTS = (PART, WINDOW_PART)
"""Of parts of the keys."""
GROUPED = (NO_MASK, PART)
"""Kernels whose tiles have the rows of all query heads of a KV head."""
ALL_KEYS = 2**30
"""The window of rows that have none."""
