"""Who may not read a model whose weights do rotations for each other."""

from __future__ import annotations

import pytest

from hk_backend.engine.linear.folded import check_fold
from hk_backend.terms.folds import ALL, FOLD_KEY, HEADS


@pytest.mark.parametrize(
    ("fold", "adapters", "readers"),
    [(None, "LoRA adapters", "a drafter"), (HEADS, "", "a drafter"), (ALL, "", "")],
)
def test_accepted(fold: str | None, adapters: str, readers: str) -> None:
    check_fold({FOLD_KEY: fold} if fold else {}, adapters, readers)


@pytest.mark.parametrize(
    ("fold", "adapters", "readers", "why"),
    [
        ("most", "", "", r"hk_folded 'most' is not valid: expected one of none, heads, all"),
        ([], "", "", r"hk_folded \[\] is not valid: expected one of"),
        (HEADS, "LoRA adapters", "", r"'heads' .* with LoRA adapters, .* with --fold none"),
        (ALL, "LoRA adapters", "", r"'all' .* with LoRA adapters, .* with --fold none"),
        (ALL, "", "a drafter", r"'all' .* with a drafter: .* rotated: .* --fold heads or none"),
    ],
)
def test_refused(fold: object, adapters: str, readers: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_fold({FOLD_KEY: fold}, adapters, readers)
