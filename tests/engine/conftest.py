"""A process without counts and checks, in an environment without HK's variables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hk_backend.config import get_config
from hk_backend.engine.linear import route
from hk_backend.routing.routes import routes


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("HK_BACKEND", "HK_CHECK", "HK_DEVICE", "HK_EVIDENCE", "HK_STRICT"):
        monkeypatch.delenv(name, raising=False)
    forget()
    routes.reset()
    yield
    monkeypatch.undo()
    forget()
    routes.reset()


def forget() -> None:
    """Makes the next use of the configuration read the environment anew."""
    get_config.cache_clear()
    route._check_of.cache_clear()
