"""What vLLM's real selector chooses by default on an MI355X, asked in processes of their own."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.integration.hk_vllm.rocm.parents import Parent
from tests.integration.hk_vllm.rocm.pretending import answers_of
from tests.integration.shared.defaults.cells import Cell
from tests.integration.shared.defaults.traffic import CHECKPOINT, FP8

Choices = dict[str, dict[str, dict[str, Any]]]
"""By setting, layer and dtype of the cache: what `session.choose` found."""


def parent_of(cell: Cell) -> Parent:
    """The backend that serves `cell`, its layout and the size of its pages."""
    dtype = FP8 if cell.traffic.cache == CHECKPOINT else cell.traffic.cache
    found = choices()[cell.setting][cell.attention.name][dtype]
    member = found["path"].rpartition("HK_")[2]
    size = found["block_size"]
    parent = Parent(member, member, found["layout"], size, size)
    assert found["path"] == parent.hk_path, "HK is not around it"
    return parent


@cache
def choices() -> Choices:
    """Of all settings."""
    sessions = (answers_of("defaults.session", *flags) for flags in (["--aiter"], []))
    return {setting: of for session in sessions for setting, of in session.items()}
