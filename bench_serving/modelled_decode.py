"""Decode attention beside the bytes that it must read, for `kernels --modelled`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bench_serving.modelled import ARCH
from hk_backend import _emulator
from hk_backend.kernels import KernelEntry
from hk_backend.kernels.catalogue import Catalogue, NoKernel
from hk_backend.kernels.costs import costs
from hk_backend.kernels.entry import Fact
from hk_backend.kernels.masks import WINDOW
from hk_backend.lab import tables
from hk_backend.lab.timing.calibration import statement
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.model import time
from hk_backend.lab.timing.workloads.attention_decode import Shape, batch, launch

WORD = "decode"
"""Word of `--cases` that selects this table."""
MARKS = (
    "<!-- modelled decode: written by `make modelled` -->\n",
    "<!-- end of modelled decode -->\n",
)
FORMS = (
    *((64, "paged", "bf16"), (128, "paged", "bf16"), (128, "tokens", "bf16")),
    *((128, "split", "bf16"), (256, "paged", "bf16")),
    *((64, "paged", "e4m3"), (128, "paged", "e4m3")),
)
"""Head size, layout and elements of the cache."""


class Batch(NamedTuple):
    """A batch, and the most that its time should be in units of its bytes' time; None: no goal."""

    name: str
    shape: Shape
    goal: float | None = None


BATCHES = (
    Batch("1 x 8k", batch(1, 8192)),
    Batch("32 x 8k", batch(32, 8192)),
    Batch("128 x 8k", batch(128, 8192)),
    Batch("256 x 8k", batch(256, 8192)),
    Batch("1 x 128k", batch(1, 131072), 1.3),
    Batch("1 x 128k, 255 x 100", Shape([1] * 256, [131072] + [100] * 255, 32, 8), 1.2),
    Batch("2 x 32k, 126 x 200", Shape([1] * 128, [32768] * 2 + [200] * 126, 32, 8), 1.2),
    Batch("32 x 8k, 4 tokens each", batch(32, 8192, tokens=4)),
    Batch("1 x 128k, heads 8/1", batch(1, 131072, 8, 1)),
)
"""Requests and their keys; heads 32/8 unless the name says something else."""


def model(kernels: Catalogue, workers: int, out: Path, tell: Callable[[str], object]) -> str:
    """Models the table, writes `modelled_decode.md` into `out`, and returns its Markdown.

    Raises `RuntimeError` if the emulator cannot execute a kernel to its end.
    """
    rate = costs(ARCH).read_bytes_per_microsecond
    lines = []
    with ThreadPoolExecutor(workers) as pool:
        for case in BATCHES:
            found = pool.map(lambda form, case=case: _time(kernels, case.shape, *form), FORMS)
            cells = [_cell(*each, rate, case.goal) for each in found]
            lines.append([case.name, *cells])
            tell(f"{case.name}: {', '.join(cells)}")
    headings = [
        "modelled us, in units of the time for its bytes",
        *(f"d={size}, {keys}{' fp8' if stored == 'e4m3' else ''}" for size, keys, stored in FORMS),
    ]
    said = (
        f"Decode: {statement('attention_decode')}. Its bytes are read at {rate / 1e6:.2f} TB/s. "
        "Launches are not counted.\n"
    )
    text = "\n".join((said, tables.markdown(headings, lines))).strip()
    out.mkdir(parents=True, exist_ok=True)
    (out / "modelled_decode.md").write_text(f"{text}\n")
    return text


def _time(
    kernels: Catalogue, shape: Shape, head_size: int, keys: str, stored: str
) -> tuple[float, float]:
    """Microseconds without the launch, and bytes, of the kernel that serves a batch."""
    facts: dict[str, Fact] = {"keys": keys, "stored": stored, "mask": WINDOW, "padded": False}
    found = kernels.alternatives("attention_decode", dtype="bf16", head_size=head_size, **facts)
    assert not isinstance(found, NoKernel), f"no kernel with {found.fact} {found.value}"
    kernel: KernelEntry = found[-1]
    traced = trace(launch(kernel, shape), threads=1)
    apart = float(_emulator.TimingParameters(ARCH)["launch"])
    return float(time(traced).microseconds) - apart, traced.launch.bytes


def _cell(microseconds: float, moved: float, rate: float, goal: float | None) -> str:
    share = microseconds / (moved / rate)
    text = f"{microseconds:.1f} ({share:.2f})"
    return f"**{text}**" if goal is not None and share > goal else text
