"""The output folder: locked while it is written, resumable, complete once it has config.json.

`hk_quantize.json` is both the report for people and the state of an interrupted run. Every file
is written under another name and then renamed, so that a file with its own name is complete.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from hk_backend.quantize.errors import QuantizeError
from hk_backend.terms.folds import NONE

REPORT = "hk_quantize.json"
PART = ".part"
PIECE = ".piece-"
SHARDS = "shards"
CALIBRATED = "calibrated"
"""Keys of the report for the two kinds of files that are written whole.

`SHARDS` are the files of the result. `CALIBRATED` files each hold the codes of one decoder layer
until the result is finished.
"""


class Output:
    """The output folder of a run, with the files that it holds so far.

    `report`: content of `REPORT`; its `settings` and `fingerprint` identify the run.
    `piece_bytes`: size of the pieces that this run writes; pieces of another size are not resumed.
    """

    def __init__(
        self, directory: Path, settings: dict[str, Any], fingerprint: str, piece_bytes: int
    ) -> None:
        self.directory = directory
        self._piece_bytes = piece_bytes
        self.report: dict[str, Any] = {
            "settings": settings,
            "fingerprint": fingerprint,
            "finished": False,
            SHARDS: {},
            CALIBRATED: {},
            "pieces": {},
        }

    @contextmanager
    def opened(self, wanted: int, joined: Mapping[str, int] | None = None) -> Iterator[None]:
        """Create or resume the folder, and lock it.

        Args:
            wanted: bytes that the finished folder will hold.
            joined: bytes of each file that is joined from pieces; for a while both exist.

        Raises:
            QuantizeError: another program or other settings wrote the folder, another run is
                writing it, or the disk is full.
        """
        fresh = not self.directory.exists()
        if self.directory.exists() and not self.directory.is_dir():
            raise QuantizeError(f"{self.directory} is a file; expected a folder to write into")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise QuantizeError(f"{self.directory}: {error.strerror}") from None
        try:
            lock(handle, self.directory)
            if not fresh and any(self.directory.iterdir()):
                self._take_up()
            self._check_space(wanted, joined or {})
            self.save_report()
            yield
        finally:
            os.close(handle)

    def _take_up(self) -> None:
        path = self.directory / REPORT
        if not path.is_file():
            raise QuantizeError(
                f"{self.directory} is not empty and has no {REPORT}: this command did not write it"
            )
        try:
            found = json.loads(path.read_text())
            settings, fingerprint = found["settings"], found["fingerprint"]
        except (ValueError, KeyError, TypeError) as error:
            raise QuantizeError(f"{path} is damaged ({error!r}); remove the folder") from None
        for name, value in self.report["settings"].items():
            if settings.get(name) != value:
                before, now = (as_option(name, each) for each in (settings.get(name), value))
                raise QuantizeError(
                    f"{self.directory} was started with {before}, now it is {now}; use the same or "
                    "another folder"
                )
        if fingerprint != self.report["fingerprint"]:
            raise QuantizeError(
                f"{self.directory} was started from a model that has changed since; remove it"
            )
        self.report = found
        self.report.setdefault(CALIBRATED, {})  # not in older versions' folders
        self.report["pieces"] = {
            file: kept
            for file, kept in found.get("pieces", {}).items()
            if isinstance(kept, dict) and kept.get("piece_bytes") == self._piece_bytes
        }
        for leftover in self.directory.glob(f"*{PART}"):
            leftover.unlink()
        for piece in self.directory.glob(f"*{PIECE}*"):
            if piece.name.partition(PIECE)[0] not in self.report["pieces"]:
                piece.unlink()  # its file is complete, or starts again

    def _check_space(self, wanted: int, joined: Mapping[str, int]) -> None:
        left = [nbytes for file, nbytes in joined.items() if not self.has(file)]
        wanted += max(left, default=0)
        present = sum(path.stat().st_size for path in self.directory.glob("*.safetensors*"))
        free = shutil.disk_usage(self.directory).free
        if wanted - present > free:
            raise QuantizeError(
                f"{self.directory}: {wanted - present:,} bytes are needed, {free:,} are free"
            )

    def has(self, file: str, kind: str = SHARDS) -> bool:
        """Whether this run or an earlier one finished a whole file."""
        record = self.report[kind].get(file)
        path = self.directory / file
        return bool(record) and path.is_file() and path.stat().st_size == record["bytes"]

    def has_piece(self, file: str, number: int) -> bool:
        """Whether this run or an earlier one wrote piece `number` of an unfinished shard."""
        return (
            len(self.report["pieces"].get(file, {"layers": ()})["layers"]) > number
            and self._piece(file, number).is_file()
        )

    def write_piece(
        self,
        file: str,
        number: int,
        tensors: dict[str, torch.Tensor],
        layers: list[dict[str, Any]],
    ) -> None:
        """Write a piece of a shard, so that an interrupted run does not start the shard again."""
        with self._replacing(self._piece(file, number).name) as part:
            save_file(tensors, part)
        fresh = {"piece_bytes": self._piece_bytes, "layers": []}
        self.report["pieces"].setdefault(file, fresh)["layers"][number:] = [layers]
        self.save_report()

    def join_pieces(self, file: str) -> None:
        """Write a shard from all its pieces, and delete the pieces."""
        kept = self.report["pieces"][file]["layers"]
        pieces = [self._piece(file, number) for number in range(len(kept))]
        try:
            tensors = {name: data for piece in pieces for name, data in load_file(piece).items()}
        except (OSError, SafetensorError) as error:
            raise self._damaged("pieces", file, error) from None
        self.write_shard(file, tensors, [layer for layers in kept for layer in layers])
        for piece in pieces:
            piece.unlink()

    def calibrated(self, file: str) -> dict[str, torch.Tensor]:
        """The tensors of a file of calibrated layers that this run or an earlier one wrote."""
        try:
            return load_file(self.directory / file)
        except (OSError, SafetensorError) as error:
            raise self._damaged(CALIBRATED, file, error) from None

    def _damaged(self, kind: str, file: str, error: Exception) -> QuantizeError:
        """The error for a damaged file. The report forgets the file, so that it is written
        again."""
        del self.report[kind][file]
        self.save_report()
        what = f"a piece of {file}" if kind == "pieces" else file
        return QuantizeError(
            f"{self.directory}: {what} is damaged ({error}); the same command writes it again"
        )

    def _piece(self, file: str, number: int) -> Path:
        return self.directory / f"{file}{PIECE}{number:05}"

    def write_shard(
        self,
        file: str,
        tensors: dict[str, torch.Tensor],
        layers: list[dict[str, Any]],
        kind: str = SHARDS,
    ) -> None:
        """Write a whole file; `layers`: the report's records of the layers in it."""
        with self._replacing(file) as part:
            save_file(tensors, part, metadata={"format": "pt"})
            shutil.copymode(self.directory / REPORT, part)  # safetensors makes files private
        size = (self.directory / file).stat().st_size
        self.report[kind][file] = {"bytes": size, "layers": layers}
        self.report["pieces"].pop(file, None)
        self.save_report()

    def drop_calibrated(self) -> None:
        """Delete the files of calibrated layers, which finished shards do not need."""
        for file in self.report[CALIBRATED]:
            (self.directory / file).unlink(missing_ok=True)
        self.report[CALIBRATED] = {}

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
                f"{self.directory / file}: {why}; run the same command to resume from here"
            ) from None


def as_option(name: str, value: Any) -> str:
    """A setting as an option of the command line."""
    if name == "shard_bytes":
        return f"--shard-size {value / 1e9:g}" if value else "no --shard-size"
    if name == "activations":
        value = "quantized" if value in ("token", "token_block", "mx") else value
    if name == "calibration":
        return f"--text (sha256 {value[:12]})" if value else "no --text"
    if name == "rotation":
        return f"--rotation {value}" if value else "no --rotation"
    if name == "fold":
        value = value or NONE  # None: written before the option existed
    if name == "ignore":
        return " ".join(f"--ignore {pattern}" for pattern in value or ()) or "no --ignore"
    return f"the model {value}" if name == "model" else f"--{name} {value}"


def finished_settings(directory: Path) -> dict[str, Any]:
    """The settings of a folder that a run has finished; empty for any other folder."""
    try:
        report = json.loads((directory / REPORT).read_text())
        return dict(report["settings"]) if report["finished"] else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def lock(handle: int, directory: Path) -> None:
    """Lock a folder; the system releases the lock when the process ends, however it ends."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise QuantizeError(f"{directory}: another run is writing into it") from None
