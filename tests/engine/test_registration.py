"""Putting routes in place: what stands in the way is one line, or with HK_STRICT=1 one error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from hk_backend.config import get_config
from hk_backend.engine.registration import Plugin, RegisterError
from hk_backend.engine.strict import StrictError, refuse


@pytest.fixture(autouse=True)
def attention_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_BACKEND", "attention")


class Lines(logging.Handler):
    """What an engine's own handler is given."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


@pytest.fixture
def engine_log() -> Iterator[Lines]:
    logger, handler = logging.getLogger("an_engine"), Lines()
    logger.propagate = False  # as vLLM's: nothing reaches the root
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def plugin(register: Callable[[], str] = lambda: "") -> Plugin:
    logger = logging.getLogger("an_engine.plugin")
    return Plugin("Engine", logger, {"attention": register}, lambda: "")


def broken() -> str:
    raise ImportError("no kernels")


def test_lines_of_hk_backend_are_the_engine_s(engine_log: Lines) -> None:
    """With its prefix and its level: not bare, by Python's last resort."""
    plugin().register_routes()
    logging.getLogger("hk_backend.devices.hip.emulated").warning("hk_backend: slow")
    assert engine_log.lines == ["WARNING hk_backend: slow"]


def test_an_unknown_variable_is_named(engine_log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVIC", "cpu")
    plugin().register_routes()
    said = "HK_DEVIC is not a variable of hk_backend: did you mean HK_DEVICE?"
    assert engine_log.lines == [f"WARNING hk_backend: {said}"]


@pytest.mark.parametrize(
    ("variables", "register", "why"),
    [
        ({"HK_DEVICE": "gpu"}, lambda: "", "HK_DEVICE='gpu' is not valid"),
        ({}, broken, "HK cannot be loaded: ImportError: no kernels"),
        ({}, lambda: "another version", "another version"),
    ],
)
def test_strict_ends_with_the_reason_alone(
    variables: dict[str, str],
    register: Callable[[], str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    engine_log: Lines,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    plugin(register).register_routes()
    assert [why in line for line in engine_log.lines] == [True]
    monkeypatch.setenv("HK_STRICT", "1")
    get_config.cache_clear()
    with pytest.raises(RegisterError, match=r"^HK_STRICT=1: ") as caught:
        plugin(register).register_routes()
    assert why in str(caught.value)
    assert is_alone(caught.value)


def test_a_strict_refusal_is_alone_even_where_an_error_is_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HK_STRICT", "1")
    get_config.cache_clear()

    def fall_back() -> None:
        try:
            broken()
        except ImportError as error:
            refuse(str(error))

    with pytest.raises(StrictError) as caught:
        fall_back()
    assert str(caught.value) == "HK_STRICT=1: attention would fall back: no kernels"
    assert is_alone(caught.value)


def is_alone(error: BaseException) -> bool:
    """Whether its traceback shows no other error."""
    return error.__cause__ is None and (error.__suppress_context__ or error.__context__ is None)
