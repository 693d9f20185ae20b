"""The compiled kernels of an arch, selected by what they compute.

`codeobjects/<arch>/` has the code objects (`.co`) and an index for each operator
(`<operator>.json`), all written by hk_backend/lab/toolchain/build.py. An index is read
when its operator is first requested. Reading needs no compiler and no GPU.

    facts = {"dtype": "bf16", "stored": "bf16", "head_size": 64, "keys": "paged", "mask": "none"}
    entry = catalogue("gfx950").select("attention_prefill", **facts)
    argument = pack_arguments(entry, query=q.data_ptr(), ...)
    entry.code_object(), entry.symbol, entry.workgroups(argument), entry.block, entry.dynamic_lds
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from hk_backend.kernels.entry import CodeObjectError, Fact, KernelEntry
from hk_backend.kernels.index import read_index

CODE_OBJECTS = Path(__file__).parent / "codeobjects"
MEASURING = CODE_OBJECTS / "measure"
"""Code objects that measure a GPU (`hk-backend time --measure`) and take no part in serving."""

Family = tuple[KernelEntry, ...]
"""The kernels of one operator."""


@dataclass(frozen=True)
class NoKernel:
    """Reason why no kernel was selected. `fact` is the first requested fact that no remaining
    kernel has. `valid` are its values among those kernels, sorted; empty: the operator has no
    kernel."""

    fact: str
    value: Fact
    valid: tuple[Fact, ...]


@dataclass(frozen=True)
class Catalogue:
    """The kernels of one arch, by operator."""

    arch: str
    families: Mapping[str, Family] = field(repr=False)

    @property
    def kernels(self) -> Family:
        """Every kernel of the arch, which reads every index. Raises `CodeObjectError`."""
        return tuple(entry for family in self.families.values() for entry in family)

    def select(self, operator: str, /, **facts: Fact) -> KernelEntry | NoKernel:
        """The one kernel of `operator` with these facts (`KernelEntry.facts`).

        Raises `ValueError` if its kernels lack one of the facts or if several kernels match, and
        `CodeObjectError` if the index cannot be read.
        """
        found = self.alternatives(operator, **facts)
        if isinstance(found, NoKernel):
            return found
        if len(found) > 1:
            raise _several(operator, facts, found)
        return found[0]

    def alternatives(self, operator: str, /, **facts: Fact) -> Family | NoKernel:
        """The kernels of `operator` with these facts, the largest tile first.

        All compute the same result from the same argument struct. A planner chooses one for each
        launch.

        Raises `ValueError` if the operator's kernels lack one of the facts. Likewise if the
        matching kernels differ in another fact or in their struct, or two have the same tile and
        LDS. Raises `CodeObjectError` if the index cannot be read.
        """
        left = self.families.get(operator, ())
        if not left:
            return NoKernel("operator", operator, tuple(self.families))
        for name, value in facts.items():
            if unknown := [entry for entry in left if name not in entry.facts]:
                there = ", ".join(sorted(unknown[0].facts)) or "none"
                raise ValueError(f"{operator} has no fact {name!r}; there are: {there}")
            wanted = tuple(entry for entry in left if entry.facts[name] == value)
            if not wanted:
                return NoKernel(name, value, values(left, name))
            left = wanted
        if not _alternatives(left):
            raise _several(operator, facts, left)
        return tuple(sorted(left, key=lambda entry: (-entry.tile.rows, -entry.tile.columns)))

    def kernel(self, name: str) -> KernelEntry:
        """Finds a kernel by its name. Raises `KeyError` with the three nearest names."""
        for family in self.families.values():
            for entry in family:
                if entry.name == name:
                    return entry
        names = [entry.name for entry in self.kernels]
        nearest = ", ".join(get_close_matches(name, names, n=3, cutoff=0.0)) or "none"
        raise KeyError(
            f"no kernel {name!r} for {self.arch}; of {len(names)} the nearest: {nearest}"
        )


def _alternatives(family: Family) -> bool:
    """Whether a launch can choose among these kernels by size, and pass the same struct to any."""
    first = family[0]
    alike = all(e.facts == first.facts and e.arguments == first.arguments for e in family[1:])
    return alike and len({(entry.tile, entry.dynamic_lds) for entry in family}) == len(family)


def _several(operator: str, facts: Mapping[str, Fact], found: Family) -> ValueError:
    names = ", ".join(entry.name for entry in found)
    return ValueError(f"{operator} {dict(facts)}: several kernels: {names}")


def values(family: Family, fact: str) -> tuple[Fact, ...]:
    """Values of a fact among these kernels, sorted."""
    return tuple(sorted({entry.facts[fact] for entry in family}))


@dataclass(frozen=True)
class Indexes(Mapping[str, Family]):
    """The families in an arch's folder, each read when it is first requested."""

    folder: Path

    def __getitem__(self, operator: str) -> Family:
        """Reads the kernels of an operator.

        Raises `KeyError`, or `CodeObjectError` for an index that cannot be read.
        """
        return read_index(self._path(operator))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.stem for path in self.folder.glob("*.json")))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _path(self, operator: str) -> Path:
        path = self.folder / f"{operator}.json"
        if not path.is_file():
            raise KeyError(operator)
        return path


def arches(folder: Path = CODE_OBJECTS) -> list[str]:
    """The arches that kernels were built for."""
    return sorted({path.parent.name for path in folder.glob("*/*.json")})


@functools.cache
def catalogue(arch: str, folder: Path = CODE_OBJECTS) -> Catalogue:
    """The kernels for an arch, which may carry features: `gfx950:sramecc+:xnack-`.

    Raises `CodeObjectError` if there are none. No index is read yet.
    """
    arch = arch.partition(":")[0]
    if arch not in arches(folder):
        there = ", ".join(arches(folder)) or "none (`make kernels` builds them)"
        raise CodeObjectError(f"no kernels for {arch!r}; arches: {there}")
    return Catalogue(arch, Indexes(folder / arch))
