"""Modelled times of the candidates beside the kernels that the planner chooses.

python -m tests.kernels.candidates
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.workloads import gemm
from tests.kernels.candidates import ARCH, built, decode

UNITS = 256
"""Number of compute units of the modelled device."""
ROWS = (1, 8)
LAYERS = ((6144, 4096), (28672, 4096), (4096, 14336))
"""N and K of qkv, gate_up and down of Llama 3 8B."""
FACTS = ("a", "b", "scales")


def microseconds(entry: KernelEntry, shape: gemm.Shape) -> float:
    return float(model.time(trace(gemm.launch(entry, shape), threads=1)).microseconds)


def gemm_times(candidates: Sequence[KernelEntry]) -> None:
    """Prints the times of products of few rows."""
    for format in dict.fromkeys(str(entry.facts["a"]) for entry in candidates):
        own = [entry for entry in candidates if entry.facts["a"] == format]
        facts = [own[0].facts[name] for name in FACTS]
        shipped = tuple(
            entry
            for entry in catalogue(ARCH).families["gemm"]
            if [entry.facts[name] for name in FACTS] == facts
        )
        for n, k in LAYERS:
            for m in ROWS:
                planned, shape = gemm.serving(shipped, gemm.Shape(m, n, k), UNITS)
                time = microseconds(planned, shape)
                print(f"{n}x{k}, M={m}: {planned.name} in {shape.splits}, {time:.2f} us")
                for entry in own:
                    mine = microseconds(entry, gemm.Shape(m, n, k))
                    print(f"  {entry.name:24} {mine:6.2f} us, {time / mine:.3f} of its speed")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        gemm_times(built(Path(folder), "gemm_skinny", "gemm"))
    with tempfile.TemporaryDirectory() as folder:
        joins = built(Path(folder), "attention_decode_joins", "attention_decode")
        for line in decode.table(catalogue(ARCH).kernel(decode.SHIPPED), decode.by_name(joins)):
            print(line)


if __name__ == "__main__":
    main()
