"""A pytest plugin that leaves out the tests which an interrupted run has finished.

    pytest -p tests.suite.resume --finished FILE

FILE has their node ids, one on each line.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--finished", type=Path, required=True, help="Node ids to leave out.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    finished = set(config.getoption("--finished").read_text().splitlines())
    left_out = [item for item in items if item.nodeid in finished]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item.nodeid not in finished]
