"""Printing shared by all commands."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
progress = Console(stderr=True)


def print_json(data: Any) -> None:
    """Print one JSON document on standard output. Raises `ValueError` for NaN."""
    json.dump(data, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")
