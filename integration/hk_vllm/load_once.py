"""Loads a model once in vLLM, for `hk-backend tune`: while it loads, its layers are measured."""

from __future__ import annotations

from collections.abc import Sequence

from vllm import LLM, EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser


def load_once(model: str, options: Sequence[str]) -> None:
    """Load `model` with random weights and stop.

    Args:
        options: vLLM's own, as on its command line. Graphs and compilation are left out: a contest
            is held before them.
    """
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    given = parser.parse_args(["--model", model, *options, "--load-format", "dummy"])
    arguments = EngineArgs.from_cli_args(given)
    arguments.enforce_eager = True
    llm = LLM.from_engine_args(arguments)
    llm.llm_engine.engine_core.shutdown()
