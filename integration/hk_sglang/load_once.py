"""Loads a model once in SGLang, for `hk-backend tune`, which measures its layers while it loads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sglang.srt.entrypoints.engine import Engine
from sglang.srt.server_args import ServerArgs


def load_once(model: str, options: Sequence[str]) -> None:
    """Loads `model` with random weights, and stops.

    Args:
        options: SGLang's own, as on its command line. Graphs are off, as contests come before them.
    """
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    given = parser.parse_args(
        ["--model-path", model, *options, "--load-format", "dummy", "--disable-cuda-graph"]
    )
    Engine(server_args=ServerArgs.from_cli_args(given)).shutdown()
