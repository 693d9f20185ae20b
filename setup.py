"""Builds `hk_backend._cpu`, the host kernels, with pybind11 and ninja.

Each instruction set is the same sources compiled once more with its own flags; which one
runs is chosen at run time. Nothing of torch is linked: the extension takes pointers, dtypes,
sizes and strides, and finds torch's own OpenMP runtime in the process.
"""

import platform
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
SOURCES = ROOT / "csrc" / "cpu"
COMMON = "-O3 -std=c++20 -fPIC -fvisibility=hidden -fno-math-errno -Wall -Wextra -Wno-psabi"
# -ffp-contract=fast: a * b + c on a vector is one fused instruction
KERNEL = "-ffp-contract=fast -fno-trapping-math -Wno-maybe-uninitialized"  # GCC 12 on _mm512_max_ps
ISA_FLAGS = {"portable": ""}
if platform.machine() in ("x86_64", "AMD64"):
    ISA_FLAGS["avx2"] = "-mavx2 -mfma -mf16c"
    ISA_FLAGS["avx512"] = (
        "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512"
    )


class NinjaBuildExt(build_ext):
    """Writes a build.ninja for the extension and runs ninja on it."""

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        build = Path(self.build_temp).resolve()
        build.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        (build / "build.ninja").write_text(ninja_file(target))
        subprocess.run([*ninja_command(), "-C", str(build)], check=True)


def ninja_command() -> list[str]:
    import ninja

    return [str(Path(ninja.BIN_DIR) / "ninja")]


def ninja_file(target: Path) -> str:
    import pybind11

    includes = f"-I{sysconfig.get_path('include')} -I{pybind11.get_include()} -I{SOURCES.resolve()}"
    isas = " ".join(f"-DHK_CPU_{isa.upper()}" for isa in ISA_FLAGS)
    lines = [
        "rule cxx",
        f"  command = c++ {COMMON} {includes} {isas} $flags -MD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        "  command = c++ -shared $in -o $out.new -ldl && mv $out.new $out",
    ]
    objects = []

    def compile_to(name: str, source: Path, flags: str) -> None:
        objects.append(f"{name}.o")
        lines.append(f"build {name}.o: cxx {escape(source)}\n  flags = {flags}")

    for source in sorted(SOURCES.glob("*.cpp")):
        if source.name.endswith("_kernel.cpp"):
            for isa, isa_flags in ISA_FLAGS.items():
                flags = f"{KERNEL} {isa_flags} -DHK_ISA={isa}"
                compile_to(f"{source.stem}_{isa}", source, flags)
        else:
            compile_to(source.stem, source, "")
    lines.append(f"build {escape(target)}: link {' '.join(objects)}\n")
    return "\n".join(lines)


def escape(path: Path) -> str:
    return str(path.resolve()).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


setup(
    packages=[
        "hk_backend",
        "hk_backend.bench",
        "hk_backend.devices",
        "hk_backend.ops",
        "hk_backend.reference",
        "hk_vllm",
    ],
    package_dir={"hk_vllm": "integration/hk_vllm"},
    package_data={"hk_backend": ["py.typed", "*.pyi"], "hk_vllm": ["py.typed"]},
    ext_modules=[Extension("hk_backend._cpu", sources=[])],
    cmdclass={"build_ext": NinjaBuildExt},
)
