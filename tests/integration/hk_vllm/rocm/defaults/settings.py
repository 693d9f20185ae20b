"""The ways to start vLLM that decide which attention backend it chooses, no flag naming one."""

from __future__ import annotations

from dataclasses import dataclass

VARIABLE = "VLLM_ROCM_USE_AITER"


@dataclass(frozen=True)
class Setting:
    """`installed`: AITER is; `variable`: VLLM_ROCM_USE_AITER, None: unset. `connector`: a KV
    connector, which offloads or transfers the cache."""

    installed: bool = True
    variable: str | None = None
    connector: bool = False

    def __str__(self) -> str:
        """As the table has it."""
        words = ["a KV connector"] * self.connector
        if not self.installed:
            words.append("AITER not installed")
        if self.variable is not None:
            words.append(f"`{VARIABLE}={self.variable}`")
        return ", ".join(words) or "no flag"


DEFAULTS = [
    Setting(installed, variable, connector)
    for connector in (False, True)
    for installed, variable in ((True, None), (True, "1"), (False, None))
]
"""Of the matrix."""
AITER_OFF = [Setting(variable="0", connector=connector) for connector in (False, True)]
"""The same as without the variable: a test says so."""
