"""Small kernels for the HIP library's tests, and their catalogue."""

from __future__ import annotations

from pathlib import Path

from hk_backend.kernels import Catalogue, catalogue
from hk_backend.lab.toolchain import build
from hk_backend.lab.toolchain.compiler import Toolchain
from tests.kernels.sources import ARCH, Source, write

BLOCK = 64
WIDE_LDS = 96 * 1024
INFO = '{1, 1, 1, 0, 0, "measure", "test"}'

FILL = Source(
    name="fill",
    body="""
using Args = hk::MeasureArgs;
__device__ void run(const Args& a) {
  int i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (i < a.steps) ((int*)a.results)[i] = a.bytes;
}
""",
    info=INFO,
)
"""A kernel with the struct of the measuring kernels: `results[i] = bytes` for i < steps."""

STRAY = Source(
    name="stray",
    body=FILL.body.replace("if (i < a.steps) ", ""),
    info=FILL.info,
)
"""The same kernel without the check of the end."""

WIDE = Source(
    name="wide",
    body=f"""
using Args = hk::MeasureArgs;
extern __shared__ int lds[];
__device__ void run(const Args& a) {{
  int lane = __builtin_amdgcn_workitem_id_x();
  int last = {WIDE_LDS} / 4 - 64;
  lds[last + lane] = lane;
  __builtin_amdgcn_s_barrier();
  ((int*)a.results)[lane] = lds[last + 63 - lane];
}}
""",
    info=f'{{1, 1, 1, {WIDE_LDS}, 0, "measure", "test"}}',
)
"""A kernel that sets `results[i] = 63 - i`, through the last words of 96 KiB of dynamic LDS."""

PLACE = Source(
    name="place",
    body="""
struct Args { int* out; int width; };
__device__ void run(const Args& a) {
  int y = __builtin_amdgcn_workgroup_id_y(), z = __builtin_amdgcn_workgroup_id_z();
  a.out[a.width * z + y] = 10 * z + y;
}
""",
    info=INFO,
)
"""A kernel that writes each workgroup's place in y and z."""

COUNT = Source(
    name="count",
    body="""
struct Args { int* out; long steps; };
__device__ void run(const Args& a) {
  volatile int* out = a.out;
  for (long i = 0; i < a.steps; ++i) *out = 1;
}
""",
    info=INFO,
)
"""A kernel with a loop of `steps` turns."""


def build_catalogue(folder: Path, tools: Toolchain) -> Catalogue:
    """Compiles all of the kernels into `folder`, and returns their catalogue."""
    root = write(folder / "tree", FILL, STRAY, WIDE, PLACE, COUNT)
    build.build(ARCH, folder / "codeobjects" / ARCH, tools, root=root)
    return catalogue(ARCH, folder / "codeobjects")
