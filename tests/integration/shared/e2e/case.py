"""A scenario that a stock engine and HK both serve, by its name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from typing_extensions import Self

MODELS = ("tiny-64", "tiny-128", "smollm2")


@dataclass(frozen=True)
class Case:
    """Its prompts are made once the checkpoint is there; `kind` names its traffic."""

    block: ClassVar[str]
    """What the engine calls a block of its KV cache."""
    model: str
    dtype: str
    kind: str
    block_size: int

    def __str__(self) -> str:
        return f"{self.model}-{self.dtype}-{self.kind}-{self.block}{self.block_size}"

    def healthy(self) -> Self:
        """The same without faults."""
        return replace(self, kind=self.kind.removeprefix("faults_"))
