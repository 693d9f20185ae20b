"""Masks of the attention kernels, which say what keys a row sees: the catalogue's fact `mask`.

The names, and the arguments of each mask, match csrc/kernels/attention/mask.hpp.
"""

from __future__ import annotations

NO_MASK = "none"
"""Each row sees all keys, or with a causal mask all keys up to its own."""
WINDOW = "window"
"""Each row sees only the last `window` keys up to its own, or a head has a sink, or both."""
CAPPED = "capped"
"""Scores have a soft cap; a window and sinks are optional."""
ALIBI = "alibi"
"""Scores have a bias that grows with the distance (ALiBi); a window and sinks are optional."""
PART = "part"
"""Each workgroup sees one part of all keys; the merge kernel joins the partial results."""
WINDOW_PART = "window_part"
"""Each workgroup sees one part of the keys in a window; the merge kernel joins the results."""
WINDOWED = (WINDOW, CAPPED, ALIBI, WINDOW_PART)
"""Masks with a window. They take sinks too, which the merge kernel applies for `WINDOW_PART`."""
PARTS = (PART, WINDOW_PART)
"""Masks of kernels that split the keys into parts."""
GROUPED = (NO_MASK, PART)
"""Masks of prefill kernels whose tiles have the rows of all query heads of a KV head."""
ALL_KEYS = 2**30
"""Value of the argument `window` for rows without a window."""
