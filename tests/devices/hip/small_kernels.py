"""Small kernels for the HIP library's tests, and their catalogue."""

from __future__ import annotations

from pathlib import Path

from hk_backend.kernels import Catalogue, catalogue
from hk_backend.lab.toolchain import build
from hk_backend.lab.toolchain.compiler import Toolchain
from tests.kernels.sources import ARCH, Source, write

BLOCK = 64
WIDE_LDS = 96 * 1024

FILL = Source(
    name="fill",
    body="""
struct Args { int* out; int value; int count; };
__device__ void run(const Args& a) {
  int i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (i < a.count) a.out[i] = a.value;
}
""",
    info='{64, 0, 0, 0, 0, "ceil_div(count, tile_rows)", "test"}',
)
"""`out[i] = value` for i < count."""

STRAY = Source(
    name="stray",
    body=FILL.body.replace("if (i < a.count) ", ""),
    info=FILL.info,
)
"""The same without minding the end."""

WIDE = Source(
    name="wide",
    body=f"""
struct Args {{ int* out; int count; }};
extern __shared__ int lds[];
__device__ void run(const Args& a) {{
  int lane = __builtin_amdgcn_workitem_id_x();
  int last = {WIDE_LDS} / 4 - 64;
  lds[last + lane] = lane;
  __builtin_amdgcn_s_barrier();
  a.out[lane] = lds[last + 63 - lane];
}}
""",
    info=f'{{64, 0, 0, {WIDE_LDS}, 0, "1", "test"}}',
)
"""`out[i] = 63 - i`, through the last words of 96 KiB of dynamic LDS."""

PLACE = Source(
    name="place",
    body="""
struct Args { int* out; int width; };
__device__ void run(const Args& a) {
  int y = __builtin_amdgcn_workgroup_id_y(), z = __builtin_amdgcn_workgroup_id_z();
  a.out[a.width * z + y] = 10 * z + y;
}
""",
    info='{64, 0, 0, 0, 0, "1, width, 3", "test"}',
)
"""Each workgroup's place in y and z."""

COUNT = Source(
    name="count",
    body="""
struct Args { int* out; long steps; };
__device__ void run(const Args& a) {
  volatile int* out = a.out;
  for (long i = 0; i < a.steps; ++i) *out = 1;
}
""",
    info='{1, 0, 0, 0, 0, "1", "test"}',
)
"""A loop of `steps` turns."""


def build_catalogue(folder: Path, tools: Toolchain) -> Catalogue:
    """All of them, compiled into `folder`."""
    root = write(folder / "tree", FILL, STRAY, WIDE, PLACE, COUNT)
    build.build(ARCH, folder / "codeobjects" / ARCH, tools, root=root)
    return catalogue(ARCH, folder / "codeobjects")
