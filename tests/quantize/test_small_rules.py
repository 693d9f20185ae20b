"""Rules of `quantize` on single functions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from hk_backend.quantize import stream
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.output import as_option
from hk_backend.quantize.plan import ignored_layers
from hk_backend.quantize.source import open_source
from tests.quantize.conftest import WEIGHTS

PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
               "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")  # fmt: skip


@pytest.mark.parametrize(
    ("ignored", "left"), [("q", "self_attn.k_proj"), ("v", "self_attn.q_proj"),
                          ("gate", "mlp.up_proj"), ("up", "mlp.gate_proj")],
)  # fmt: skip
def test_a_part_of_what_engines_merge_is_not_ignored_alone(ignored: str, left: str) -> None:
    with pytest.raises(QuantizeError, match=rf"{ignored}_proj but not {left}; engines run them"):
        ignored_layers(list(PROJECTIONS), [f"*.{ignored}_proj"])


def test_a_text_is_called_by_the_head_of_its_digest() -> None:
    assert as_option("calibration", "0123456789abcdef") == "--text (sha256 0123456789ab)"


def test_a_file_that_was_cut_off_since_it_was_opened(writable: Path) -> None:
    source = open_source(writable)
    name = next(iter(source.tensors))
    (writable / WEIGHTS).write_bytes((writable / WEIGHTS).read_bytes()[:-8])
    with pytest.raises(QuantizeError, match=f"cannot read {name}"):
        list(source.pieces(name))


@pytest.mark.parametrize("config", [None, "{", '{"model_type": "unheard of"}'])
def test_a_config_that_transformers_cannot_read(config: str | None, tmp_path: Path) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(QuantizeError, match="transformers cannot load it"):
        stream._skeleton(SimpleNamespace(directory=tmp_path))  # type: ignore[arg-type]
