"""The output folder: locked while it is written, resumable, complete only with its config.json.

`hk_quantize.json` is both the report for people and the state of an interrupted run. Every file
appears under its name in one rename, so what is there is whole.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from hk_backend.quantize.errors import QuantizeError

REPORT = "hk_quantize.json"
PART = ".part"


class Output:
    """`report`: as in the file; `settings` and `fingerprint` tell which run it belongs to."""

    def __init__(self, directory: Path, settings: dict[str, Any], fingerprint: str) -> None:
        self.directory = directory
        self.report: dict[str, Any] = {
            "settings": settings,
            "fingerprint": fingerprint,
            "finished": False,
            "shards": {},
        }

    @contextmanager
    def opened(self, wanted: int) -> Iterator[None]:
        """Make or take up the folder, and hold it alone.

        Args:
            wanted: bytes that the finished folder will hold.

        Raises:
            QuantizeError: it is somebody else's, another run writes it, or the disk is too full.
        """
        fresh = not self.directory.exists()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise QuantizeError(f"{self.directory}: {error.strerror}") from None
        try:
            with lock(handle, self.directory):
                if not fresh and any(self.directory.iterdir()):
                    self._take_up()
                self._check_space(wanted)
                self.save_report()
                yield
        finally:
            os.close(handle)

    def _take_up(self) -> None:
        path = self.directory / REPORT
        if not path.is_file():
            raise QuantizeError(
                f"{self.directory} is not empty and has no {REPORT}: it is not ours to write into"
            )
        try:
            found = json.loads(path.read_text())
            settings, fingerprint = found["settings"], found["fingerprint"]
        except (ValueError, KeyError, TypeError) as error:
            raise QuantizeError(f"{path} is damaged ({error!r}); remove the folder") from None
        for name, value in self.report["settings"].items():
            if settings.get(name) != value:
                raise QuantizeError(
                    f"{self.directory} was begun with {name} {settings.get(name)}, now it is "
                    f"{value}; give the same options or another folder"
                )
        if fingerprint != self.report["fingerprint"]:
            raise QuantizeError(
                f"{self.directory} was begun from a model that has changed since; remove it"
            )
        self.report = found
        for leftover in self.directory.glob(f"*{PART}"):
            leftover.unlink()

    def _check_space(self, wanted: int) -> None:
        present = sum(path.stat().st_size for path in self.directory.glob("*.safetensors"))
        free = shutil.disk_usage(self.directory).free
        if wanted - present > free:
            raise QuantizeError(
                f"{self.directory}: {wanted - present:,} bytes are wanted, {free:,} are free"
            )

    def has(self, file: str) -> bool:
        """Whether a shard was finished by this run or one before it."""
        record = self.report["shards"].get(file)
        path = self.directory / file
        return bool(record) and path.is_file() and path.stat().st_size == record["bytes"]

    def write_shard(
        self, file: str, tensors: dict[str, torch.Tensor], layers: list[dict[str, Any]]
    ) -> None:
        """A whole shard; `layers`: what is to be remembered of the layers in it."""
        with self._replacing(file) as part:
            save_file(tensors, part, metadata={"format": "pt"})
            shutil.copymode(self.directory / REPORT, part)  # safetensors makes it private
        size = (self.directory / file).stat().st_size
        self.report["shards"][file] = {"bytes": size, "layers": layers}
        self.save_report()

    def write_json(self, file: str, content: Any) -> None:
        with self._replacing(file) as part:
            part.write_text(json.dumps(content, indent=2) + "\n")

    def copy(self, path: Path) -> None:
        with self._replacing(path.name) as part:
            shutil.copyfile(path, part)

    def save_report(self) -> None:
        self.write_json(REPORT, self.report)

    @contextmanager
    def _replacing(self, file: str) -> Iterator[Path]:
        part = self.directory / (file + PART)
        try:
            yield part
            with part.open("rb") as written:
                os.fsync(written.fileno())
            part.replace(self.directory / file)
        except (OSError, SafetensorError) as error:
            part.unlink(missing_ok=True)
            full = getattr(error, "errno", None) == errno.ENOSPC or "No space" in str(error)
            why = "the disk is full" if full else str(error)
            raise QuantizeError(
                f"{self.directory / file}: {why}; the same command goes on from here"
            ) from None


@contextmanager
def lock(handle: int, directory: Path) -> Iterator[None]:
    """Hold a folder alone; the system lets go of it when the process ends, however."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise QuantizeError(f"{directory}: another run is writing into it") from None
    yield
