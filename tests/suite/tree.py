"""What is tested: the commit, and every file that git would take."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from tests.models import ROOT


def digest(root: Path = ROOT) -> str:
    """The same for the same files with the same contents, changed and new ones included."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    found = hashlib.sha256(commit(root).encode())
    for name in sorted(filter(None, listed.split("\0"))):
        path = root / name
        content = path.read_bytes() if path.is_file() else b"-"
        found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:16]


def commit(root: Path = ROOT) -> str:
    """The commit's short hash; `+` behind it where files differ from it."""
    changed = _git(root, "status", "--porcelain").strip()
    return _git(root, "rev-parse", "--short", "HEAD").strip() + ("+" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout
