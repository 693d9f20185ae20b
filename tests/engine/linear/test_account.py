"""A loaded model's layers in the log: loud where the user named a device that computes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from hk_backend.config import get_config
from hk_backend.engine.linear.account import account
from hk_backend.routing.routes import routes


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("HK_DEVICE", raising=False)
    routes.reset()
    yield
    routes.reset()
    get_config.cache_clear()


@pytest.mark.parametrize(
    ("device", "layers", "level"),
    [
        ("auto", [("a", "no device")], logging.INFO),
        ("hip", [("a", "no device")], logging.WARNING),
        ("cpu", [("a", "a weight with 3 axes"), ("b", "")], logging.INFO),
    ],
)
def test_the_level_of_what_is_left(
    device: str,
    layers: list[tuple[str, str]],
    level: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("HK_DEVICE", device)
    get_config.cache_clear()
    with caplog.at_level(logging.INFO):
        account(layers, "vLLM", "cpu", logging.getLogger("engine"))
    (left,) = [record for record in caplog.records if "are left to vLLM" in record.getMessage()]
    assert left.levelno == level
