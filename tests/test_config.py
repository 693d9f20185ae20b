"""The environment: every variable, its valid values, and the error of the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from hk_backend.config import (
    DEVICES,
    INTERNAL,
    ROUTES,
    VARIABLES,
    Config,
    ConfigError,
    get_config,
    read_config,
    unknown_variables,
)
from tests import budget, seed


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    get_config.cache_clear()
    yield
    get_config.cache_clear()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("HK_DEVIC", "did you mean HK_DEVICE?"),
        ("HK_STRICKT", "did you mean HK_STRICT?"),
        (
            "HK_XYZZYXYZZY",
            "expected HK_BACKEND, HK_DEVICE, HK_STRICT, HK_CHECK, HK_EVIDENCE, HK_CACHE_DIR",
        ),
    ],
)
def test_a_variable_that_is_none_of_ours_is_named(
    name: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for known in (*VARIABLES, *INTERNAL, budget.SHARED, seed.VARIABLE):
        monkeypatch.setenv(known, "1")
    assert unknown_variables() == []
    monkeypatch.setenv(name, "hip")
    assert unknown_variables() == [f"{name} is not a variable of hk_backend: {hint}"]


ATTENTION = frozenset({"attention"})
VALUES = {
    "backend": {
        "": frozenset(), "0": frozenset(), "1": frozenset(ROUTES), " 1 ": frozenset(ROUTES),
        "attention": ATTENTION, " attention , attention": ATTENTION,
        "attention,decode": frozenset({"attention", "decode"}),
    },
    "device": dict(zip(DEVICES, DEVICES, strict=True)),
    "strict": {"": 0, "0": 0, "1": 1},
    "check": {"0": 0.0, "0.01": 0.01, "1": 1.0},
    "evidence": {"": "measure", "measure": "measure", "ignore": "ignore"},
}  # fmt: skip
VALID = [(field, *pair) for field, values in VALUES.items() for pair in values.items()]


@pytest.mark.parametrize(("field", "text", "value"), VALID)
def test_valid_values(
    field: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"HK_{field.upper()}", text)
    config = read_config()
    assert getattr(config, field) == value
    assert config.enabled == (field == "backend" and bool(value))


INVALID = {
    "HK_BACKEND": ("2", "true", "attention,linaer", "attention,", "0,attention", "decode,linear"),
    "HK_DEVICE": ("cuda", "CPU", "cpu:avx", "emulated:gfx90a"),
    "HK_STRICT": ("yes", "2"),
    "HK_CHECK": ("-0.1", "1.5", "nan", "often"),
}
EXPECTED = {
    "HK_BACKEND": ["0, 1", *ROUTES],
    "HK_DEVICE": list(DEVICES),
    "HK_STRICT": ["0 or 1"],
    "HK_CHECK": ["between 0 and 1"],
}


@pytest.mark.parametrize(
    ("variable", "text"), [(name, text) for name, texts in INVALID.items() for text in texts]
)
def test_invalid_values_name_the_variable_the_value_and_what_is_valid(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError) as raised:
        read_config()
    message = str(raised.value)
    assert message.startswith(f"{variable}={text!r} is not valid: expected ")
    for valid in EXPECTED[variable]:
        assert valid in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["HK_DEVICE", "HK_CHECK", "HK_SOMETHING_ELSE", "hk_unrelated"])
def test_what_sets_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign variable sets nothing, nor does an empty one: `HK_DEVICE= vllm serve` is the
    shell's way to unset."""
    monkeypatch.setenv(name, "" if name in VARIABLES else "x")
    assert read_config() == Config()


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad environment is read again; what was read well cannot be changed."""
    monkeypatch.setenv("HK_STRICT", "maybe")
    with pytest.raises(ConfigError):
        get_config()
    monkeypatch.setenv("HK_STRICT", "1")
    monkeypatch.setenv("HK_BACKEND", "1")
    first = get_config()
    monkeypatch.setenv("HK_BACKEND", "0")
    assert get_config() is first
    assert first.enabled
    assert first.strict == 1
    with pytest.raises(ValidationError):
        first.strict = 0
    get_config.cache_clear()
    assert not get_config().enabled
