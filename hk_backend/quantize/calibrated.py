"""Files with the codes of calibrated layers, one for each decoder layer, until shards are whole.

Shards hold tensors in the source's order, but calibration goes through layers in the model's order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hk_backend.quantize.calibrate import Calibration
from hk_backend.quantize.output import CALIBRATED, Output
from hk_backend.quantize.plan import Item, Plan
from hk_backend.quantize.source import PROJECTIONS


class CalibratedLayers:
    """The calibrated layers of a run. `tokens`: number of tokens that calibration sees."""

    def __init__(self, calibration: Calibration, plan: Plan, out: Output) -> None:
        self._calibration = calibration
        self._out = out
        layers = plan.layers
        self._layers: list[dict[str, Item]] = [
            {n: item for n in PROJECTIONS if (item := layers.get(f"model.layers.{index}.{n}"))}
            for index in range(calibration.layers)
        ]
        self.tokens = calibration.tokens

    def write(self, advance: Callable[[str, int], None], needed: bool) -> None:
        """Write every missing file, if it is `needed`: finished shards need none.

        Raises:
            QuantizeError: a file could not be read or written, or a weight is not finite.
        """
        files = [_file(index) for index in range(len(self._layers))]
        needed = needed and not all(self._out.has(file, CALIBRATED) for file in files)
        for index, (file, items) in enumerate(zip(files, self._layers, strict=True)):
            if needed and self._out.has(file, CALIBRATED):
                stored = self._out.calibrated(file)
                parts = {
                    name: [stored[part] for part in each.names] for name, each in items.items()
                }
                self._calibration.go_on(parts)
            elif needed:
                self._calibrate(file, items)
            advance(f"model.layers.{index}", sum(item.source.nbytes for item in items.values()))

    def _calibrate(self, file: str, items: dict[str, Item]) -> None:
        tensors: dict[str, torch.Tensor] = {}
        records: list[dict[str, Any]] = []
        for name, found in self._calibration.quantize(items).items():
            item = items[name]
            tensors |= zip(item.names, (found.codes, found.scales), strict=True)
            record = {"layer": item.layer, "error": found.error, "objective": found.objective}
            records.append(record)
        self._out.write_shard(file, tensors, records, CALIBRATED)

    def read(self, item: Item) -> tuple[list[torch.Tensor], dict[str, Any]]:
        """The tensors of a layer that was written, and the report's record of it."""
        index = next(i for i, items in enumerate(self._layers) if item in items.values())
        stored = self._out.calibrated(_file(index))
        records = self._out.report[CALIBRATED][_file(index)]["layers"]
        record = next(record for record in records if record["layer"] == item.layer)
        return [stored[name] for name in item.names], record


def _file(index: int) -> str:
    return f"calibrated-{index:05}.safetensors"
