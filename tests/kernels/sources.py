"""Small kernels that the tests compile, in a folder like the repository's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hk_backend.lab.toolchain import build, disassembly
from hk_backend.lab.toolchain.compiler import Toolchain
from hk_backend.lab.toolchain.disassembly import Disassembly, parse
from hk_backend.lab.toolchain.sources import SOURCES

ARCH = "gfx950"
THREADS = 64

PRELUDE = """
#include "hk/args/measure.hpp"
#include "hk/kernel_info.hpp"
HK_ARCHES({arches});
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define KERNEL __attribute__((global, amdgpu_flat_work_group_size({threads}, {threads})))
using bf16x8 = __attribute__((ext_vector_type(8))) __bf16;
using f32x4 = __attribute__((ext_vector_type(4))) float;
namespace k {{
{body}
}}
extern "C" KERNEL void {name}({parameters}) {{ {call} }}
extern "C" __attribute__((constant, used)) const hk::KernelInfo<{facts}> {name}_info = {info};
"""

COPY = """
struct Args { const float* x; float* y; int n; };
__device__ void run(const Args& a) { if (a.n) *a.y = *a.x; }
"""


@dataclass(frozen=True)
class Source:
    """A kernel `k::run(const Args&)` and what surrounds it."""

    body: str = COPY
    name: str = "small"
    info: str = '{1, 2, 3, 0, 0, "measure", "test"}'
    facts: str = ""  # the type of the facts
    parameters: str = "k::Args args"
    call: str = "k::run(args);"
    threads: int = THREADS
    arches: str = ARCH

    def text(self) -> str:
        return PRELUDE.format(**vars(self))


def write(root: Path, *sources: Source) -> Path:
    """Writes a tree that `build` compiles: the repository's headers and these sources."""
    folder = root / SOURCES
    folder.mkdir(parents=True)
    (root / "csrc" / "include").symlink_to(build.ROOT / "csrc" / "include")
    for source in sources:
        (folder / f"{source.name}.hip").write_text(source.text())
    return root


def compile_kernel(
    root: Path, source: Source, tools: Toolchain
) -> tuple[dict[str, Any], Disassembly]:
    """Compiles the source, and returns the kernel's record in the index and its code."""
    built = build.compile_one(
        SOURCES / f"{source.name}.hip", ARCH, root, tools, write(root, source)
    )
    code = disassembly.disassemble(root / f"{source.name}.co", ARCH, tools)
    ((entry,),) = (kernels.values() for kernels in built.kernels.values())
    return entry, code[source.name]


def straight(*lines: str) -> Disassembly:
    """A disassembly of instructions of 4 bytes each, from text."""
    words = [line.partition(" ") for line in lines]
    return Disassembly(tuple(parse(word[0], word[2], 4 * i) for i, word in enumerate(words)))


KERNEL = re.compile(r'extern "C" __attribute__\(\(global\b[^{;]*\bvoid\s+(\w+)\([^)]*\)\s*{[^{}]*}')
INFO = re.compile(r'extern "C" __attribute__\(\(constant\b[^{;=]*\s(\w+)_info\s*=[^;]*;')
"""A kernel and its constant, as they are after the preprocessor."""


def keep_kernel(source: Path, name: str, arch: str, tools: Toolchain, root: Path) -> None:
    """Replaces a source by its preprocessed text, with only one kernel left."""
    text = tools.run("clang++", *build.FLAGS, f"--offload-arch={arch}", "-E", source, cwd=root)
    for definition in KERNEL, INFO:
        assert name in definition.findall(text)
        text = definition.sub(lambda found: found[0] if found[1] == name else "", text)
    (root / source).write_text(text)
