"""The directory where the processes of one engine keep their counters (see metrics.py).

This module is separate from metrics.py because an engine's first process may not import
prometheus_client yet. That package decides at import whether a process's numbers are shared, and
engines set `PROMETHEUS_MULTIPROC_DIR` only after they have read their arguments.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from multiprocessing import parent_process
from multiprocessing.util import Finalize
from pathlib import Path

VARIABLE = "HK_METRICS_DIR"
"""Environment variable with the directory, which the first process sets for its children."""

logger = logging.getLogger(__name__)
_shared_by = 0
_shared_at = 0.0


def share() -> bool:
    """Makes the directory that child processes inherit.

    Call this in every process of an engine before it starts others. A process that multiprocessing
    started is part of its parent's engine and keeps what it inherited. Any other process is an
    engine of its own, whatever its environment says.

    Returns:
        whether this process is its engine's first, and this its first call.
    """
    global _shared_by, _shared_at
    if parent_process() is not None or _shared_by == os.getpid():
        return False
    _shared_by, _shared_at = os.getpid(), time.time()
    try:
        made = tempfile.mkdtemp(prefix="hk_backend_metrics_")
    except OSError as error:
        os.environ.pop(VARIABLE, None)
        logger.warning("hk_backend: no counters on /metrics: %s", error)
        return True
    os.environ[VARIABLE] = made
    Finalize(None, _remove, args=(made, os.getpid()), exitpriority=0)
    return True


def _remove(made: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(made, ignore_errors=True)


def own() -> Path | None:
    """The directory that this engine's first process made; None if there is none."""
    made = os.environ.get(VARIABLE)
    return Path(made) if made and Path(made).is_dir() else None


def current() -> Path | None:
    """Directory for this engine's metrics files; None if nobody would read them.

    If prometheus_client's multiprocess mode is on, it is that package's own directory.
    """
    theirs = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if theirs:
        return Path(theirs) if Path(theirs).is_dir() else None
    return own()


def is_ours(path: Path) -> bool:
    """Whether a file was written since this engine started, and not by an earlier one."""
    return path.stat().st_mtime >= _shared_at
