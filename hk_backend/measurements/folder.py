"""The folder that keeps measurements: one file for each machine, merged by all its processes.

    kept = folder.read(this_machine("cpu:avx512"))
    folder.add(Measurements(machine=kept.machine, layers=(layer,)))

A faulty file or folder is no error: the log gets one line, and nothing is kept.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from hk_backend.config import get_config
from hk_backend.terms import measurements
from hk_backend.terms.measurements import Machine, Measurements, MeasurementsError

logger = logging.getLogger(__name__)

LOCK_SECONDS = 10
"""Seconds that a process waits for another one to finish writing."""


def folder() -> Path:
    """The folder, which may not exist yet: `HK_CACHE_DIR`, or the platform's folder for caches."""
    return get_config().cache_dir or Path(platformdirs.user_cache_dir("hk_backend"))


def path_of(machine: Machine) -> Path:
    """The path of a machine's file, named by the processor and a digest of the whole machine."""
    digest = hashlib.sha256(machine.model_dump_json().encode()).hexdigest()[:12]
    name = re.sub(r"[^a-z0-9]+", "-", machine.processor.lower()).strip("-")
    return folder() / f"{name[:60]}-{digest}.json"


def read(machine: Machine) -> Measurements:
    """The measurements of `machine`; none if its file is missing, corrupt or another machine's."""
    path, nothing = path_of(machine), Measurements(machine=machine)
    if not path.exists():
        return nothing
    try:
        found = measurements.read(path)
    except MeasurementsError as error:
        _say_once(f"measurements are ignored: {error}")
        return nothing
    if found.machine != machine:
        _say_once(f"measurements are ignored: {path} was written for another machine or version")
        return nothing
    return found


def add(new: Measurements) -> None:
    """Merge `new` into its machine's file, beside what other processes have written."""
    path = path_of(new.machine)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=LOCK_SECONDS):
            fresh = path.with_suffix(".new")
            fresh.write_text(read(new.machine).merged(new).as_text())
            fresh.replace(path)  # in one step, so that no reader sees half of it
    except (OSError, Timeout) as error:
        _say_once(f"measurements cannot be kept in {path}: {error}")


def every() -> Iterator[tuple[Path, Measurements]]:
    """Yields all files of the folder that hold measurements, whatever the machine."""
    for path in sorted(folder().glob("*.json")):
        try:
            yield path, measurements.read(path)
        except MeasurementsError as error:
            _say_once(f"measurements are ignored: {error}")


def forget(machine: Machine) -> None:
    """Delete the files of `machine` with any number of threads, so that it is measured anew.

    Raises:
        OSError: a file cannot be deleted.
    """
    for path, found in every():
        if is_same(found.machine, machine):
            path.unlink(missing_ok=True)


def is_same(one: Machine, other: Machine) -> bool:
    """Whether two machines differ at most in their number of threads."""
    return one.model_copy(update={"threads": other.threads}) == other


@cache
def _say_once(line: str) -> None:
    logger.warning("hk_backend: %s", line)
