"""The few kernels of a source that have all that the source's kernels have."""

from __future__ import annotations

from hk_backend.kernels import catalogue
from tests.models import ROOT
from tests.mutants.few_kernels import INSTANCE, few_kernels, only

SOURCE = "csrc/kernels/attention_prefill.hip"


def test_each_head_size_each_cache_and_each_tile_is_among_them() -> None:
    kernels = [e for e in catalogue("gfx950").kernels if e.path.stem == "attention_prefill"]
    chosen = [entry for entry in kernels if entry.name in few_kernels(SOURCE)]
    assert len(chosen) < len(kernels) / 2
    for fact in ("dtype", "head_size", "keys"):
        assert {e.facts[fact] for e in chosen} == {e.facts[fact] for e in kernels}
    assert {e.tile.rows for e in chosen} == {e.tile.rows for e in kernels}


def test_the_source_keeps_their_lines_and_all_line_numbers() -> None:
    text = (ROOT / SOURCE).read_text()
    shorter = only(text, ["attention_prefill_bf16_d64_paged"])
    assert INSTANCE.findall(shorter) == ["bf16_d64_paged"]
    lines, before = shorter.splitlines(), text.splitlines()
    assert [a for a, b in zip(lines, before, strict=True) if a != b and a] == []
