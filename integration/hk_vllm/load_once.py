"""Loads a model once in vLLM, for `hk-backend tune`, which measures its layers while it loads."""

from __future__ import annotations

from collections.abc import Sequence

from vllm import LLM, EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser


def load_once(model: str, options: Sequence[str]) -> None:
    """Loads `model` with random weights, and stops.

    Args:
        options: vLLM's own, as on its command line. Graphs and compilation are off, as contests
            come before them.
    """
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    given = parser.parse_args(["--model", model, *options, "--load-format", "dummy"])
    arguments = EngineArgs.from_cli_args(given)
    arguments.enforce_eager = True
    llm = LLM.from_engine_args(arguments)
    llm.llm_engine.engine_core.shutdown()
