"""The file of measurements of one machine: times of layers, and of launches of HK's GPU kernels.

    {"format": 1, "machine": {...}, "layers": [{...}, ...], "launches": [{...}, ...]}

Times of layers are by HK and by an engine. `hk_backend.measurements` finds, reads and writes such
files; `HK_EVIDENCE` may name one.
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
"""Sources of a launch's time: a GPU, or the emulator's clock."""
Microseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class MeasurementsError(ValueError):
    """A file does not hold measurements; the message names it and says why."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Machine(_Record):
    """Everything outside a layer that decides how fast it is; equal machines share a file.

    Args:
        processor: name of the CPU or GPU.
        torch: version of torch.
        hk_backend: version of hk_backend.
        build: digest of HK's compiled kernels.
        threads: number of torch's threads.
        limits: environment variables that restrict the instruction sets of torch or oneDNN, as
            "NAME=value", sorted.
    """

    processor: Name
    torch: Name
    hk_backend: Name
    build: Name
    threads: Rows
    limits: tuple[str, ...] = Field(default=(), strict=False)


class Times(_Record):
    """Median times for one number of rows, in microseconds, by HK and by the engine."""

    rows: Rows
    ours: Microseconds
    theirs: Microseconds


class MeasuredLayer(_Record):
    """One kind of layer (`hk_backend.engine.evidence.Kind`) and its times.

    Args:
        engine_version: version of the measured engine.
        times: at least one, ascending in rows.
        unmeasured: numbers of rows that would have taken too long to measure.
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
        """Identity of the times: the kind of layer and the engine's version."""
        kind = (self.operator, self.engine, self.device, self.layer, self.theirs)
        return (*kind, self.engine_version)


class MeasuredLaunch(_Record):
    """The fastest launch found on a GPU for `m` rows times a weight `[n, k]`.

    Args:
        activations, weights, scales: fields of a `kernels.gemm_operands.Operands`.
        splits: workgroups that share the depth of a tile.
        microseconds: time in a stream, behind another launch.
        sha256: digest of the kernel's code object.
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
        """Identity of the problem that the launch solves, and of the GPU."""
        format = (self.activations, self.weights, self.scales)
        return (self.arch, self.compute_units, *format, self.n, self.k, self.m, self.source)


class Measurements(_Record):
    """The whole file. Each kind of layer, and each problem of a launch, occurs once."""

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
        """The layer with this `MeasuredLayer.key`; None if the file does not hold it."""
        return next((layer for layer in self.layers if layer.key == key), None)

    def merged(self, other: Measurements) -> Measurements:
        """The records of both files. If both hold one, `other`'s counts. `machine` stays."""
        layers = {each.key: each for each in (*self.layers, *other.layers)}
        launches = {each.key: each for each in (*self.launches, *other.launches)}
        update = {"layers": tuple(layers.values()), "launches": tuple(launches.values())}
        return self.model_copy(update=update)

    def as_text(self) -> str:
        """JSON text that the function `read` reads."""
        return self.model_dump_json(indent=1) + "\n"


def read(path: Path) -> Measurements:
    """Read and check a whole file.

    Raises:
        MeasurementsError: the file cannot be read, or does not hold measurements; one line.
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
