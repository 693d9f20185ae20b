"""What the shared tests of the linear route ask of an engine: the module `linear_layers` of its
folder, which the fixture `engine` gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from hk_backend.engine.linear.heads import Head
from hk_backend.terms.verdict import Verdict
from tests.integration.shared.linear.named_tensors import ATTENTION
from tests.integration.shared.linear_checkpoints import Checkpoint, Shards


class LinearEngine(Protocol):
    """Layers are merged column-parallel ones of the engine, with its real quantisation methods."""

    CHECKPOINTS: Mapping[str, Checkpoint]
    """What the engine has a configuration for."""

    def alone(self) -> AbstractContextManager[None]:
        """What the engine needs to make layers, in a process that is its only rank, and HK's own
        best device: what `auto` leaves to torch on some machines is not the question here."""
        ...

    def installed(self) -> AbstractContextManager[None]:
        """The linear route in this process, and the engine as it was afterwards."""
        ...

    def check_linear(self) -> Verdict: ...

    def why_left(self, layer: Any) -> str: ...

    def merged(
        self,
        config: Any,
        dtype: torch.dtype,
        k: int,
        widths: list[int],
        *,
        prefix: str = "model.qkv_proj",
    ) -> Any:
        """A layer of `widths` output features under quantisation `config`, not yet loaded."""
        ...

    def on_rank(
        self, number: int, size: int, device: str
    ) -> AbstractContextManager[Callable[..., Any]]:
        """In a process that is one of `size`: what makes layers there, of a class and its
        arguments."""
        ...

    def load(self, layer: Any, shards: Shards) -> Any:
        """Give `layer` its checkpoint's tensors, one for each shard, and process them."""
        ...

    def adapted(
        self, layer: Any, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor
    ) -> torch.Tensor:
        """What the engine's LoRA wrapper of a row-parallel `layer` makes of `x` `[tokens, k]` under
        an adapter of `a` `[rank, k]` and `b` `[n, rank]`."""
        ...

    def loaded(
        self,
        config: Any,
        tensors: dict[str, torch.Tensor],
        prefix: str = f"{ATTENTION}.qkv_proj",
        dtype: torch.dtype = torch.bfloat16,
    ) -> Any:
        """The layer of a model whose checkpoint holds `tensors`, through the engine's loader."""
        ...

    def dummy(self, config: Any) -> Any:
        """A layer as `--load-format dummy` leaves it."""
        ...

    def forward(self, layer: Any, x: torch.Tensor) -> torch.Tensor: ...

    def headed(
        self,
        asked: Head,
        table: torch.Tensor,
        *,
        tied: bool = False,
        number: int = 0,
        ranks: int = 1,
        why: str = "",
    ) -> Any:
        """On a rank, a model whose `lm_head` has `table` `[vocabulary, K]`, loaded while `asked`
        is asked of it; `embed_tokens` has the same one, if they are `tied`. `why_table_stays`: what
        the engine says of its table, if that may not be released because of `why`."""
        ...

    def reload(self, module: torch.nn.Module, tensors: Shards) -> None:
        """Load other `tensors` into `module`, by its parameters, as the engine updates weights."""
        ...

    def account(self, model: torch.nn.Module) -> None:
        """What the route does with a model that is loaded."""
        ...

    def experts(self) -> Any:
        """A mixture's, not made."""
        ...

    def savers(self) -> list[Any]:
        """Loaders that save the state of a model."""
        ...

    def update(self, model: Any, table: torch.Tensor) -> None:
        """Load another table into that model, as the engine updates weights."""
        ...

    def logits(self, model: Any, x: torch.Tensor) -> torch.Tensor:
        """What its head makes of `x`, padding included."""
        ...

    def asked_of(self, config: dict[str, Any]) -> Head:
        """What a bfloat16 model with this `quantization_config` asks of its head, 300 x 96."""
        ...

    def method(self, name: str) -> Any:
        """The class that reads the configuration of a quantisation method."""
        ...

    def config_of(self, config: dict[str, Any]) -> Any:
        """The engine's reading of a checkpoint's `quantization_config`."""
        ...

    def online(self, method: str) -> Any:
        """Of a checkpoint that is not quantised: `--quantization METHOD`."""
        ...
