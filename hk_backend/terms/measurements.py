"""The file that keeps what was measured on one machine: times of layers, by HK and by an engine,
and of launches of HK's GPU kernels.

    {"format": 1, "machine": {...}, "layers": [{...}, ...], "launches": [{...}, ...]}

`hk_backend.measurements` finds, reads and writes such files; `HK_EVIDENCE` may name one.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Name = Annotated[str, Field(min_length=1)]
Rows = Annotated[int, Field(ge=1)]
Source = Literal["measured", "modelled"]
MEASURED: Source = "measured"
MODELLED: Source = "modelled"
"""The sources of a launch's time: a GPU, or the emulator's clock."""
Microseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class MeasurementsError(ValueError):
    """A file that does not hold measurements; the message names it and says why."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Machine(_Record):
    """Everything outside a layer that decides how fast it is; two equal machines share a file.

    `processor`: the name of the CPU or GPU. `torch`, `hk_backend`: versions. `build`: a digest of
    HK's compiled kernels. `threads`: of torch. `limits`: the environment variables that restrict
    the instruction sets of torch or oneDNN, as "NAME=value", sorted.
    """

    processor: Name
    torch: Name
    hk_backend: Name
    build: Name
    threads: Rows
    limits: tuple[str, ...] = Field(default=(), strict=False)


class Times(_Record):
    """Two medians for one number of rows, in microseconds: HK's, and the engine's."""

    rows: Rows
    ours: Microseconds
    theirs: Microseconds


class MeasuredLayer(_Record):
    """One kind of layer (`hk_backend.engine.evidence.Kind`) and its times.

    `engine_version`: of the engine that was measured. `times`: ascending in rows, at least one.
    `unmeasured`: numbers of rows that would have taken too long to measure.
    """

    operator: Name
    engine: Name
    engine_version: Name
    device: Name
    layer: Name
    theirs: Name
    times: tuple[Times, ...] = Field(min_length=1, strict=False)
    unmeasured: tuple[Rows, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _ascending(self) -> MeasuredLayer:
        rows = [each.rows for each in self.times]
        if rows != sorted(set(rows)):
            raise ValueError(f"times: rows {rows}; valid: ascending, each once")
        return self

    @property
    def key(self) -> tuple[str, ...]:
        """The kind of layer and the engine's version: whatever the times belong to."""
        kind = (self.operator, self.engine, self.device, self.layer, self.theirs)
        return (*kind, self.engine_version)


class MeasuredLaunch(_Record):
    """The fastest launch that was found for `m` rows times a weight `[n, k]`, on a GPU.

    `activations`, `weights`, `scales`: a `kernels.gemm_formats.Format`. `splits`: workgroups that
    share the depth of a tile. `microseconds`: in a stream, behind another launch. `sha256`: of the
    kernel's code object.
    """

    arch: Name
    compute_units: Rows
    activations: Name
    weights: Name
    scales: Name
    m: Rows
    n: Rows
    k: Rows
    kernel: Name
    splits: Rows
    microseconds: Microseconds
    source: Source
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    @property
    def key(self) -> tuple[object, ...]:
        """Everything that the launch was found for."""
        format = (self.activations, self.weights, self.scales)
        return (self.arch, self.compute_units, *format, self.n, self.k, self.m, self.source)


class Measurements(_Record):
    """The whole file; each kind of layer, and each problem of a launch, is there once."""

    format: Literal[1] = 1
    machine: Machine
    layers: tuple[MeasuredLayer, ...] = Field(default=(), strict=False)
    launches: tuple[MeasuredLaunch, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _each_once(self) -> Measurements:
        for name, records in (("layers", self.layers), ("launches", self.launches)):
            for key, count in Counter(each.key for each in records).items():
                if count > 1:
                    said = ", ".join(map(str, key))
                    raise ValueError(f"{name}: {said} is there {count} times; valid: once")
        return self

    def find(self, key: tuple[str, ...]) -> MeasuredLayer | None:
        """The layer with this `MeasuredLayer.key`, if the file holds it."""
        return next((layer for layer in self.layers if layer.key == key), None)

    def merged(self, other: Measurements) -> Measurements:
        """Both files' records; where both hold one, `other`'s. `machine` stays."""
        layers = {each.key: each for each in (*self.layers, *other.layers)}
        launches = {each.key: each for each in (*self.launches, *other.launches)}
        update = {"layers": tuple(layers.values()), "launches": tuple(launches.values())}
        return self.model_copy(update=update)

    def as_text(self) -> str:
        """The JSON text that `read` reads."""
        return self.model_dump_json(indent=1) + "\n"


def read(path: Path) -> Measurements:
    """Read and check a whole file.

    Raises:
        MeasurementsError: it cannot be read, or it is not such a file; one line.
    """
    try:
        return Measurements.model_validate_json(path.read_bytes())
    except OSError as error:
        raise MeasurementsError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        said = first["msg"].removeprefix("Value error, ")
        raise MeasurementsError(f"{path}: {where + ': ' if where else ''}{said}") from None
