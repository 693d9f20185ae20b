"""The parent's metadata, built when somebody first looks at it, and only then."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hk_vllm.attention.backend import wrap, wrapper_of
from hk_vllm.attention.cache_forms import FORMS
from hk_vllm.attention.unbuilt import build, is_built, metadata_class_of, unbuilt
from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionMetadataBuilder

from tests.integration.hk_vllm.attention.batch import Batch, Layer
from tests.integration.shared.attention.rows import EXTEND, FRESH


@dataclass
class Metadata:
    """As a parent's: a field without and one with a default, which the class has too."""

    tokens: int
    blocks: int = 3

    def both(self) -> int:
        return self.tokens + self.blocks


BUILT = Metadata(1, 7)


class Made:
    """A metadata that counts how often it is built."""

    def __init__(self) -> None:
        self.times = 0
        self.metadata = unbuilt(Metadata, self._make)
        self.metadata.hk = "plan"

    def _make(self) -> Metadata:
        self.times += 1
        return Metadata(BUILT.tokens, BUILT.blocks)


@pytest.mark.parametrize(
    "look",
    [
        lambda metadata: metadata.tokens,
        lambda metadata: metadata.blocks,
        lambda metadata: metadata.both(),
        lambda metadata: setattr(metadata, "blocks", 7),
        lambda metadata: metadata == BUILT,
        repr,
        vars,
        copy.copy,
        copy.deepcopy,
        lambda metadata: pickle.loads(pickle.dumps(metadata)),
        dataclasses.fields,
        dataclasses.replace,
        dataclasses.asdict,
        build,
    ],
)
def test_any_look_builds_it_once(look: Callable[[Any], Any]) -> None:
    made = Made()
    found = look(made.metadata)
    assert type(made.metadata) is Metadata
    assert made.metadata == BUILT
    assert made.metadata.hk == "plan"
    assert is_built(made.metadata)
    assert made.times == 1
    assert set(vars(made.metadata)) == {"tokens", "blocks", "hk"}, "what made it is let go"
    if isinstance(found, Metadata):
        assert type(found) is Metadata
        assert found == BUILT
        assert (found is made.metadata) == (look is build), "a copy is another"


def test_the_class_is_as_declared() -> None:
    class Of(AttentionMetadataBuilder[Metadata]):
        """Says what it builds."""

    class Inherits(Of):
        """Says nothing itself."""

    class Silent(AttentionMetadataBuilder):  # type: ignore[type-arg]
        """Says nothing: then all is built at once."""

    assert metadata_class_of(Of) is metadata_class_of(Inherits) is Metadata
    assert metadata_class_of(Silent) is None
    for name in ("CPU_ATTN", "ROCM_ATTN", "ROCM_AITER_FA", "TRITON_ATTN"):
        assert metadata_class_of(wrapper_of(name).get_builder_cls()) is not None


def test_the_batch_is_that_of_the_moment(layer: Layer) -> None:
    """A runner sets other fields of the same object for the next group of layers."""
    batch = Batch(layer, [EXTEND, FRESH])
    common = batch.common_metadata()
    metadata = layer.builder.build(0, common)
    common.block_table_tensor = torch.zeros_like(common.block_table_tensor)
    assert torch.equal(metadata.block_table, batch.block_table)


class PlainBuilder(CPUAttentionMetadataBuilder):
    """A parent whose captures and drafts are built as any batch, and not looked at."""

    supports_update_block_table = True

    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> Any:
        return self.build(0, common_attn_metadata)

    def build_for_drafting(self, common_attn_metadata: Any, draft_index: int) -> Any:
        return self.build(0, common_attn_metadata)

    def update_block_table(self, metadata: Any, blk_table: Any, slot_mapping: Any) -> Any:
        return dataclasses.replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)


class PlainBackend(CPUAttentionBackend):
    get_builder_cls = staticmethod(lambda: PlainBuilder)


@pytest.fixture
def plain() -> Layer:
    return Layer(wrap(PlainBackend, FORMS["CPU_ATTN"], "HK_PLAIN"))


def test_captures_and_drafts_are_built_at_once(plain: Layer) -> None:
    """What is captured may not wait, and a draft's steps follow each other on the device."""
    common = Batch(plain, [FRESH, FRESH]).common_metadata()
    assert not is_built(plain.builder.build(0, common)), "the control"
    assert is_built(plain.builder.build_for_cudagraph_capture(common))
    assert is_built(plain.builder.build_for_drafting(common, 0))
