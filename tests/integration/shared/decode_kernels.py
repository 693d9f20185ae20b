"""Decode kernels of the engine that is installed here, right and with lengths that are stale.

`python -m tests.integration.shared.decode_kernels` prints the error of each kernel on each small
step, over the largest allowed one. It is a process of its own, since Triton's GPU and the engine's
platform are chosen once in a process.
"""

from __future__ import annotations

import json
from dataclasses import replace

from hk_backend.lab.foreign.triton_driver import KernelFinding
from hk_backend.lab.stock import cases, engines
from hk_backend.lab.stock.batches import Batch, error_of
from hk_backend.lab.stock.decode import StockDecode
from hk_backend.lab.stock.kernel import tolerating

CASES = "llama8b decode 1x8k,llama8b decode 32x8k,gpt-oss-full decode 1x8k"
FEW = (33, 70, 5)
"""Keys of requests in a step of few, among which a key more or less shows."""


def stale_error(kernel: StockDecode, batch: Batch) -> float:
    """The error of a result over one key too few, which is the control."""
    given = batch.arguments(kernel.layout)
    assert given.seq_lens is not None
    kernel.prepare(replace(given, seq_lens=given.seq_lens - 1)).run()
    return error_of(given.out, given)


def errors(kernel: StockDecode, batch: Batch) -> dict[str, float | str]:
    try:
        return {"right": kernel.error(batch), "stale": stale_error(kernel, batch)}
    except KernelFinding as finding:
        (check,) = {each.check for each in finding.launch.findings}
        with tolerating(kernel.gpu, (check,)):
            return {"finding": check, "right": kernel.error(batch)}


def steps_of(case: cases.Case) -> Batch:
    """The small step of a case, with short requests alone where it has few."""
    assert isinstance(case.small, Batch)
    if len(case.small.queries) > len(FEW):
        return case.small
    return replace(case.small, queries=(1,) * len(FEW), keys=FEW)


def main() -> None:
    found = [kernel for kernel in engines.kernels("gfx950") if isinstance(kernel, StockDecode)]
    results: dict[str, dict[str, float | str]] = {}
    for case in cases.chosen_cases(CASES):
        of = case.of
        assert isinstance(of, Batch)
        for kernel in found:
            if not kernel.refuses(of) and not kernel.elsewhere(of):
                results[f"{case.name}, {kernel.name}"] = errors(kernel, steps_of(case))
    launched = sorted({launch.kernel for launch in found[0].gpu.launches})
    print(json.dumps({"errors": results, "launched": launched}))


if __name__ == "__main__":
    main()
