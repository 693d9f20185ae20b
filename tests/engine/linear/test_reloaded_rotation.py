"""What a checkpoint says of its rotation, and which tables of a reload are empty."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from hk_backend.engine.linear.reloaded import rotations_in
from hk_backend.engine.linear.shared_table import is_empty


def test_a_checkpoint_that_names_no_rotation_has_none() -> None:
    assert rotations_in({"quant_method": "hk_fp8"}) == {}
    assert rotations_in({"quant_method": "hk_mxfp4", "rotation": 64}) == {"rotation": 64}


def test_a_shared_table_is_empty_until_one_is_loaded_again() -> None:
    released, loaded = torch.empty(0), torch.ones(1)
    assert is_empty(SimpleNamespace(weight=released, hk_rows=(8, 8)))
    assert not is_empty(SimpleNamespace(weight=loaded, hk_rows=(8, 8)))
    assert not is_empty(SimpleNamespace(weight=released))
