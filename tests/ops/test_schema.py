"""The arguments of an operator, stated once: its schema is their dataclass, flattened."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
import torch

import hk_backend.ops  # noqa: F401  (registers the operators)
from hk_backend.ops.schema import Schema
from hk_backend.terms.attention_arguments import AttentionArguments, MergeArguments
from hk_backend.terms.paged_kv import PagedKV
from tests.ops.cases import Case, arguments, make
from tests.ops.test_torch_library import CASES


@pytest.mark.parametrize("cls", [AttentionArguments, MergeArguments])
def test_the_registered_schema_is_the_dataclass(cls: Any) -> None:
    registered = getattr(torch.ops.hk_backend, cls.operator).default._schema
    names = [argument.name for argument in registered.arguments]
    assert len(set(names)) == len(names)
    # a field that takes several places is followed by the names of its parts
    places = [
        next(i for i, name in enumerate(names) if name == field.name or is_part(name, field.name))
        for field in fields(cls)
    ]
    assert places == sorted(places)
    written = [a.name for a in registered.arguments if a.alias_info and a.alias_info.is_write]
    assert sorted(written) == sorted(cls.written)
    assert not registered.returns


def is_part(name: str, field: str) -> bool:
    return field == "paged_kv" and name.startswith("paged_kv_")


@pytest.mark.parametrize(
    "case",
    [*CASES.values(), Case(k_scale="number", v_scale="one", scale=0.25, causal=False)],
    ids=[*CASES, "numbers"],
)
def test_flat_and_back(case: Case) -> None:
    of = arguments(make(case), lse=torch.zeros(case.num_heads, 1))
    again = Schema(AttentionArguments).rebuild(Schema(AttentionArguments).flatten(of))
    for field in fields(AttentionArguments):
        before, after = getattr(of, field.name), getattr(again, field.name)
        if isinstance(before, PagedKV):
            assert after.key.tensor is before.key.tensor
            assert after.value.tensor is before.value.tensor
            assert after.as_ints() == before.as_ints()
            assert after.head_size == before.head_size
        elif isinstance(before, torch.Tensor):
            assert after is before, field.name
        else:
            assert after == before, field.name


def test_each_part_stands_where_the_schema_names_it() -> None:
    """A number and a tensor in each other's places would come back right, too."""
    case = make(Case(layout="HND, two tensors"))
    tensor = torch.ones(1)
    of = arguments(case | {"k_scale": tensor, "v_scale": 2.0})
    schema = torch.ops.hk_backend.attention_prefill.default._schema
    names = [argument.name for argument in schema.arguments]
    flat = dict(zip(names, Schema(AttentionArguments).flatten(of), strict=True))
    assert flat["k_scale"] is tensor
    assert flat["v_scale"] is None
    assert (flat["k_scale_number"], flat["v_scale_number"]) == (1.0, 2.0)
    cache = case["paged_kv"]
    assert flat["paged_kv_key"] is cache.key.tensor
    assert flat["paged_kv_value"] is cache.value.tensor
    assert flat["paged_kv_layout"] == cache.as_ints()


def test_arguments_do_not_change() -> None:
    of = arguments(make(Case()))
    with pytest.raises(FrozenInstanceError):
        of.scale = 2.0  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        of.unknown = 2.0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("scales", "factors"),
    [
        ({}, (64**-0.5, 1.0)),
        ({"scale": 0.5, "k_scale": 3.0, "v_scale": 2}, (1.5, 2.0)),
        ({"scale": -2.0, "k_scale": torch.ones(1), "v_scale": torch.ones(1)}, (-2.0, 1.0)),
    ],
)
def test_factors(scales: dict[str, Any], factors: tuple[float, float]) -> None:
    """Numbers are multiplied, tensors handed on."""
    of = arguments(make(Case()) | scales)
    *found, k_scale, v_scale = of.factors()
    assert tuple(found) == factors
    tensors = [scale if isinstance(scale, torch.Tensor) else None for scale in scales.values()]
    assert k_scale is (tensors[1] if scales else None)
    assert v_scale is (tensors[2] if scales else None)
