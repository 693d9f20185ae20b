"""A copy of the committed tree, into which faults are written one at a time, and pytest in it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.models import ROOT
from tests.mutants.fault import Fault
from tests.mutants.native import LIBRARY, SUFFIX, Native
from tests.processes import finished, python
from tests.proof import plugin

IMPORTED = {
    False: ("vllm.v1.attention.backends.cpu_attn", "vllm.model_executor.models.llama"),
    True: ("sglang.srt.server_args", "sglang.srt.layers.linear"),
}
"""The modules that a process imports before it forks, in vLLM's environment and in SGLang's."""
QUIET = ("-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=short")
NOT_FOUND = re.compile(r"^ERROR: (?:file or directory )?not found: (.*)$", re.MULTILINE)
UNUSABLE = 4
"""pytest's exit code for names that it does not find, or a conftest that fails."""
_moments = itertools.count(1_500_000_000)
"""Times of files that faults are written to: each its own, or Python would take an older fault's
compiled file, of the same length, for this one's."""


@dataclass(frozen=True)
class Outcome:
    """The end of one run of pytest. `failed`: the first test that did, or what else ended the run;
    empty if all passed. `seconds`: processor time. `tests`: number that ran. `gone`: named tests
    that do not exist with the fault; none ran then."""

    failed: str
    seconds: float
    tests: int
    gone: frozenset[str] = frozenset()


class Tree:
    """A git worktree in `folder`. `sglang_python`: of SGLang's environment."""

    def __init__(self, folder: Path, sglang_python: str, native: Path) -> None:
        self.folder = folder
        self.native = Native(folder, native, best_isa())
        self._pythons = {False: sys.executable, True: sglang_python}
        self._zygotes: dict[bool, subprocess.Popen[str]] = {}
        git("worktree", "prune")
        if folder.exists():
            git("checkout", "--quiet", "--detach", "--force", git("rev-parse", "HEAD"), at=folder)
            git("clean", "-fdq", at=folder)
        else:
            git("worktree", "add", "--quiet", "--detach", str(folder))
        self._restore_libraries()
        models = folder / "models"
        if not models.exists() and (ROOT / "models").exists():
            models.symlink_to((ROOT / "models").resolve())

    def environment(self, **more: str) -> dict[str, str]:
        """The variables that `make test` sets for its units, and the copy on the path."""
        paths = (self.folder, self.folder / "integration")
        inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        outside = [path for path in inherited if not Path(path).is_relative_to(ROOT)]
        return {
            "PYTHONPATH": os.pathsep.join([*map(str, paths), *outside]),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            plugin.VARIABLE: plugin.RECORDS,
            **more,
        }

    @contextlib.contextmanager
    def fault(self, fault: Fault, kernels: Collection[str] = ()) -> Iterator[None]:
        """The copy with the fault; if any are named, with `kernels` alone of its source.
        Raises `StaleFaultError`, `BuildFailedError`."""
        path = self.folder / fault.file
        text = path.read_text()
        write(path, fault.applied(text))
        try:
            if fault.source:
                self.native.rebuild_kernels(fault.source, kernels)
            elif fault.file.startswith("csrc/"):
                self.native.rebuild(fault.file)
            yield
        finally:
            write(path, text)
            self._restore_built(fault)

    @contextlib.contextmanager
    def without(self, fault: Fault) -> Iterator[None]:
        """The copy as it was, for a while."""
        faulty = {path: path.read_bytes() for path in self._written(fault)}
        write(self.folder / fault.file, (ROOT / fault.file).read_text())
        self._restore_built(fault)
        yield
        for path, data in faulty.items():
            path.unlink()
            path.write_bytes(data)
            touch(path)

    def _written(self, fault: Fault) -> list[Path]:
        """The file that a fault changes, and what is built of it."""
        codes = self.folder / "hk_backend" / "kernels" / "codeobjects" / "gfx950"
        built = codes.iterdir() if fault.source else self._libraries()
        return [self.folder / fault.file, *(built if fault.file.startswith("csrc/") else ())]

    def _restore_built(self, fault: Fault) -> None:
        if fault.source:
            git("checkout", "--quiet", "--", "hk_backend/kernels/codeobjects", at=self.folder)
        elif fault.file.startswith("csrc/"):
            self._restore_libraries()

    def _libraries(self) -> list[Path]:
        names = *(f"{part}{SUFFIX}" for part in ("_cpu", "_emulator", "_hip")), LIBRARY
        return [self.folder / "hk_backend" / name for name in names]

    def _restore_libraries(self) -> None:
        for target in self._libraries():
            target.unlink(missing_ok=True)  # not written over: a process may have mapped it
            shutil.copy2(ROOT / "hk_backend" / target.name, target)

    def python(self, code: str) -> str:
        """Run `code` in the copy, and return what it prints."""
        env = os.environ | self.environment()
        return python("-c", code, cwd=self.folder, env=env, check=True).stdout

    def run(
        self,
        arguments: Sequence[str],
        seconds: float,
        sglang: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Run pytest until the first failure, for `seconds` of a processor at most: what takes
        longer counts as failed."""
        log = self.folder / "build" / "run.jsonl"
        log.parent.mkdir(exist_ok=True)
        log.unlink(missing_ok=True)
        code, used = self._ask(
            sglang,
            folder=str(self.folder),
            arguments=[*QUIET, f"--report-log={log}", *arguments],
            environment=self.environment(**(variables or {})),
            output=str(self.folder / "build" / "run.log"),
            seconds=seconds,
        )
        tests, failed = read_log(log)
        last = (tests or ["collection"])[-1]
        if code is None:
            failed = f"no end after {seconds:.0f} s: {last}"
        elif code < 0 and not failed:
            failed = f"signal {-code}: {last}"
        elif code not in (0, 5) and not failed:
            failed = "collection"
        gone = frozenset(self._not_found()) if code == UNUSABLE else frozenset()
        return Outcome("" if gone else failed, used, len(tests), gone)

    def _not_found(self) -> Iterator[str]:
        for name in NOT_FOUND.findall((self.folder / "build" / "run.log").read_text()):
            yield name.removeprefix(f"{self.folder}/")

    def _ask(self, sglang: bool, **job: object) -> tuple[int | None, float]:
        zygote = self._zygotes.get(sglang)
        if zygote is None or zygote.poll() is not None:
            zygote = self._zygotes[sglang] = subprocess.Popen(
                [self._pythons[sglang], "tests/mutants/zygote.py", *IMPORTED[sglang]],
                cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1", "SGLANG_PLATFORM": "hk_cpu"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert zygote.stdin
        assert zygote.stdout
        print(json.dumps(job), file=zygote.stdin, flush=True)
        for line in zygote.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                return answer["code"], answer["cpu"]
        raise RuntimeError("the process that runs the tests has died")

    def close(self) -> None:
        for zygote in self._zygotes.values():
            assert zygote.stdin
            zygote.stdin.close()
            zygote.wait()


def read_log(log: Path) -> tuple[list[str], str]:
    """The tests that a report log names, and the first that failed."""
    tests: list[str] = []
    failed = ""
    for line in log.read_text().splitlines() if log.exists() else ():
        with contextlib.suppress(ValueError):  # the last line, of a run that was ended
            report = json.loads(line)
            if report.get("$report_type") == "TestReport" and report["when"] == "setup":
                tests.append(report["nodeid"])
            if report.get("outcome") == "failed":
                failed = failed or report["nodeid"] or "collection"
    return tests, failed


def write(path: Path, text: str) -> None:
    path.write_text(text)
    touch(path)


def touch(path: Path) -> None:
    moment = next(_moments)
    os.utime(path, (moment, moment))


def git(*words: str, at: Path = ROOT) -> str:
    """Return what a command prints. Raises `CalledProcessError`."""
    return finished("git", *words, cwd=at, check=True).stdout.strip()


def best_isa() -> str:
    """The fastest instruction set of the host kernels here."""
    from hk_backend.devices.cpu.isas import usable_isas

    return usable_isas()[0]
