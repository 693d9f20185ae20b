"""Runs parts, engines' two at a time, each with a report log of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests import starts
from tests.budget import SHARED
from tests.models import ROOT
from tests.suite.parts import Part
from tests.suite.results import NOTE, read

SECONDS_TO_END = 30
AT_A_TIME = 2


@dataclass
class Session:
    """One run of the suite, whose report logs lie in `folder`.

    `sglang_python`: Python of SGLang's environment. `environment`: on top of this process's. What
    the logs in `folder` say was finished is not run again; failures are, since what ended the run
    may have caused them.
    """

    folder: Path
    sglang_python: str = sys.executable
    environment: dict[str, str] = field(default_factory=dict)
    _running: list[int] = field(default_factory=list)

    def run(self, parts: Sequence[Part]) -> bool:
        """All of `parts`, whatever they come to; False if the run was interrupted."""
        self.folder.mkdir(parents=True, exist_ok=True)
        engines = [part for part in parts if part.engine]
        pool = ThreadPoolExecutor(AT_A_TIME)
        try:
            for part in parts:
                if not part.engine:
                    pool.submit(self._run_part, part, "").result()
            named = [f"{part.name}: " if len(engines) > 1 else "" for part in engines]
            list(pool.map(self._run_part, engines, named))
        except KeyboardInterrupt:  # the terminal's reached pytest too, which has time to end
            too_late = threading.Timer(SECONDS_TO_END, self._terminate)
            too_late.start()
            pool.shutdown(cancel_futures=True)
            too_late.cancel()
            return False
        return True

    def logs(self, part: Part) -> list[Path]:
        """Report logs of `part`, the oldest first."""
        return sorted(self.folder.glob(f"{part.name}-*.jsonl"))

    def _run_part(self, part: Part, line_prefix: str) -> None:
        earlier = self.logs(part)
        log = self.folder / f"{part.name}-{len(earlier):03}.jsonl"
        python = self.sglang_python if part.sglang else sys.executable
        shared = {
            SHARED: str(self.folder / "wave-instructions"),
            starts.VARIABLE: str(self.folder / f"starts-{'sglang' if part.sglang else 'vllm'}"),
        }
        begin = time.monotonic()
        process = subprocess.Popen(
            [*part.command(python), f"--report-log={log}", *self._left_out(part, earlier)],
            cwd=ROOT,
            env=os.environ | part.environment | self.environment | shared,
            stdout=subprocess.PIPE if line_prefix else None,
            stderr=subprocess.STDOUT if line_prefix else None,
            text=True,
            errors="replace",
        )
        self._running.append(process.pid)
        for line in process.stdout or ():
            print(f"{line_prefix}{line}", end="", flush=True)
        _, status, used = os.wait4(process.pid, 0)  # counts the processor time of its children
        process.returncode = os.waitstatus_to_exitcode(status)
        self._running.remove(process.pid)
        note = {
            "$report_type": NOTE,
            "exit_code": process.returncode,
            "minutes": (time.monotonic() - begin) / 60,
            "core_minutes": (used.ru_utime + used.ru_stime) / 60,
        }
        with log.open("a") as file:
            file.write(f"\n{json.dumps(note)}\n")

    def _left_out(self, part: Part, earlier: list[Path]) -> list[str]:
        """pytest's arguments that leave out what is finished."""
        if not earlier:
            return []
        outcomes = read(part.name, earlier).outcomes
        finished = [name for name, outcome in outcomes.items() if outcome != "failed"]
        print(f"{part.name}: resumed, {len(finished)} tests are finished", flush=True)
        file = self.folder / f"{part.name}.finished"
        file.write_text("\n".join(finished))
        return ["-p", "tests.suite.resume", f"--finished={file}"]

    def _terminate(self) -> None:
        for process in self._running:
            os.kill(process, signal.SIGTERM)
