"""Every environment variable that a user sets at run time, in one place, validated.

`HK_BACKEND`: 0 (default) | 1 | a comma list of routes: attention, decode, linear.
`HK_DEVICE`: auto (default) | hip | cpu | cpu:amx | cpu:avx512_bf16 | cpu:avx512 | cpu:avx2 |
    cpu:portable | emulated:gfx942 | emulated:gfx950.
`HK_STRICT`: 0 (default) | 1: a layer that would fall back is an error.
`HK_CHECK`: 0 (default) to 1: share of calls that run beside the reference.
`HK_EVIDENCE`: measure (default): times taken while a model loads decide who computes a layer |
    ignore: HK serves wherever it can | a file of times that were measured before.
`HK_CACHE_DIR`: the folder that keeps measurements (default: the platform's folder for caches).
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hk_backend.terms.measurements import Measurements, MeasurementsError
from hk_backend.terms.measurements import read as read_measurements

Route = Literal["attention", "decode", "linear"]
Device = Literal[
    "auto",
    "hip",
    "cpu",
    "cpu:amx",
    "cpu:avx512_bf16",
    "cpu:avx512",
    "cpu:avx2",
    "cpu:portable",
    "emulated:gfx942",
    "emulated:gfx950",
]
ROUTES: tuple[str, ...] = get_args(Route)
COMES_WITH = {"decode": "attention"}
"""Routes that are installed in an engine with another one."""
DEVICES: tuple[str, ...] = get_args(Device)

_EXPECTED = {
    "backend": f"0, 1, or a comma-separated list of routes: {', '.join(ROUTES)} (decode only "
    "beside attention)",
    "device": f"one of: {', '.join(DEVICES)}",
    "strict": "0 or 1",
    "check": "a share of calls between 0 and 1, for example 0.01",
}


PREFIX = "HK_"
MEASURE_SECONDS = "HK_MEASURE_SECONDS"
"""Variable with the seconds that `hk-backend tune` gives to a model's measurements."""
INTERNAL = ("HK_METRICS_DIR", "HK_NATIVE", "HK_ISA_LEVELS", MEASURE_SECONDS)
"""Variables that HK's processes set for their children, or that the build reads."""
OF_TESTS = "HK_TEST_"
"""Prefix of variables that the tests set for each other."""


class ConfigError(ValueError):
    """An environment variable holds an invalid value; the message lists the valid ones."""


class Config(BaseSettings):
    """The validated environment. Read it through `get_config()`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
    )

    backend: Annotated[frozenset[Route], NoDecode] = frozenset()
    device: Device = "auto"
    strict: Annotated[Literal[0, 1], NoDecode] = 0
    check: float = Field(default=0.0, ge=0.0, le=1.0)
    evidence: Annotated[Literal["measure", "ignore"] | Measurements, NoDecode] = "measure"
    cache_dir: Path | None = None

    @field_validator("backend", mode="before")
    @classmethod
    def _parse_backend(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        text = value.strip()
        if text in ("", "0"):
            return frozenset()
        if text == "1":
            return frozenset(ROUTES)
        routes = frozenset(part.strip() for part in text.split(","))
        if "decode" in routes and "attention" not in routes:
            raise ValueError("decode without attention")
        return routes

    @field_validator("strict", mode="before")
    @classmethod
    def _parse_strict(cls, value: object) -> object:
        return {"": 0, "0": 0, "1": 1}.get(value, value) if isinstance(value, str) else value

    @field_validator("evidence", mode="before")
    @classmethod
    def _read_evidence(cls, value: object) -> object:
        """Reads the whole file that the variable names, before anything runs."""
        if not isinstance(value, str) or value in ("measure", "ignore"):
            return value
        try:
            return read_measurements(Path(value))
        except MeasurementsError as error:
            expected = "expected measure, ignore, or a file that hk-backend tune has written"
            raise ValueError(f"{expected}: {error}") from None

    @property
    def enabled(self) -> bool:
        """Whether any route is enabled; if not, the engine is left untouched."""
        return bool(self.backend)


def read_config() -> Config:
    """Parses the environment now.

    Raises:
        ConfigError: one line per bad variable: its name, its value, what is valid.
    """
    try:
        return Config()
    except ValidationError as error:
        lines = {}
        for problem in error.errors():
            field = str(problem["loc"][0])
            lines[field] = _describe(field, problem.get("ctx", {}).get("error"))
        raise ConfigError("; ".join(lines.values())) from None


def unknown_variables() -> list[str]:
    """One line for each environment variable that begins like HK's but is none of them."""
    lines = []
    for name in sorted(name for name in os.environ if name.startswith(PREFIX)):
        if name not in {*VARIABLES, *INTERNAL} and not name.startswith(OF_TESTS):
            near = get_close_matches(name, VARIABLES, 1)
            hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(VARIABLES)}"
            lines.append(f"{name} is not a variable of hk_backend: {hint}")
    return lines


def _describe(field: str, error: object) -> str:
    variable = f"{PREFIX}{field.upper()}"
    expected = f"expected {_EXPECTED[field]}" if field in _EXPECTED else error
    return f"{variable}={os.environ.get(variable)!r} is not valid: {expected}"


VARIABLES = tuple(f"{PREFIX}{field.upper()}" for field in Config.model_fields)


@cache
def get_config() -> Config:
    """The environment as it was at the first call in this process (see `read_config`)."""
    return read_config()
