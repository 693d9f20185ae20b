"""Scenarios over quantised checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.shared.checkpoints import Made, Scheme
from tests.integration.shared.checkpoints.damage import Damage
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.integration.shared.linear.devices import CPU
from tests.models import random_prompts

LENGTHS = [7, 64, 150]
ENGINE: dict[str, Any] = {"max_model_len": 256, "max_num_batched_tokens": 256}


def scenario(
    scheme: Scheme, made: Made, dtype: str, lengths: list[int] = LENGTHS, device: str = CPU
) -> Scenario:
    """One engine; alone in its batch where activation scales span the batch, and then no decode.

    On the emulated GPU each layer's output is compared with the reference (HK_CHECK).
    """
    engine, max_tokens = ENGINE, 3
    if scheme.per_batch:
        engine, max_tokens = {**ENGINE, "max_num_seqs": 1}, 1
    rounds = [Round(random_prompts(lengths, seed=11), max_tokens=max_tokens)]
    sabotage = "float32_everywhere" if dtype == "float32" else ""
    environment = {} if device == CPU else {"HK_DEVICE": device, "HK_CHECK": "1"}
    name = name_of(scheme, dtype, device)
    return Scenario(name, str(made.checkpoint), rounds, dtype, engine, sabotage, environment)


def damaged(damage: Damage, checkpoint: Path) -> Scenario:
    """One engine that must not start."""
    rounds = [Round(random_prompts([5], seed=1), max_tokens=1)]
    return Scenario(str(damage), str(checkpoint), rounds, "float32", ENGINE, "float32_everywhere")


def name_of(scheme: Scheme, dtype: str, device: str = CPU) -> str:
    return f"{scheme.name}-{dtype}-{device.rpartition(':')[2]}"
