"""Builds the native parts of hk_backend with pybind11 and ninja.

`_cpu` (csrc/cpu) has the host kernels.
`_emulator` (csrc/emulator) is the GPU emulator.
`_hip` (csrc/hip) is the launcher of GPU kernels.
`libhk_emulated_hip.so` is the emulator behind libamdhip64's C interface.

Sources that gain from it are compiled once for each instruction set, with its own flags; the
processor decides at run time which one runs. The extensions do not link to torch: they take
pointers, dtypes, sizes and strides, and find torch's own OpenMP runtime in the process.

HK_ISA_LEVELS=all (the default) compiles the host kernels for every instruction set of the
architecture. HK_ISA_LEVELS=native compiles only those that this machine's processor executes.

HK_NATIVE=host leaves out the emulator, which takes half the time and which serving does not need.
HK_NATIVE=0 builds no native part. It is for an environment that only reads the source, or for a
second environment of the same Python, over a source tree that the first has compiled. Both values
are for editable installs, and make no wheel.
"""

import os
import platform
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import OptionError

ROOT = Path(__file__).parent
CPU, EMULATOR, HIP = (ROOT / "csrc" / name for name in ("cpu", "emulator", "hip"))
HIP_LIBRARY = "libhk_emulated_hip.so"
NATIVE = os.environ.get("HK_NATIVE", "all")
EXTENSIONS = {"all": ("_cpu", "_emulator", "_hip"), "host": ("_cpu", "_hip"), "0": ()}
COMMON = "-O3 -std=c++20 -fPIC -fvisibility=hidden -fno-math-errno -Wall -Wextra -Wno-psabi"
# for rarely called code: bindings, and the emulator on processors that nobody has any more
COLD = "-O1"
# GCC 12 warns of an overlap in const char* + std::string
EMULATOR_WARNINGS = "-Wno-restrict"
# -ffp-contract=fast: a * b + c on a vector is one fused instruction
CPU_KERNEL = "-ffp-contract=fast -fno-trapping-math -Wno-maybe-uninitialized"  # GCC 12 on max_ps
# emulated instructions round only where the hardware rounds
SEMANTICS = "-ffp-contract=off -fno-trapping-math"
ISA_FLAGS = {"portable": ""}
if platform.machine() in ("x86_64", "AMD64"):
    ISA_FLAGS["avx2"] = "-mavx2 -mfma -mf16c"
    ISA_FLAGS["avx512"] = (
        "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512"
    )
    ISA_FLAGS["avx512_bf16"] = ISA_FLAGS["avx512"] + " -mavx512bf16"
    ISA_FLAGS["amx"] = ISA_FLAGS["avx512_bf16"] + " -mamx-tile -mamx-bf16"
EMULATOR_ISAS = [isa for isa in ("portable", "avx2") if isa in ISA_FLAGS]
LEVELS = os.environ.get("HK_ISA_LEVELS", "all")
for variable, value, valid in (
    ("HK_NATIVE", NATIVE, tuple(EXTENSIONS)),
    ("HK_ISA_LEVELS", LEVELS, ("all", "native")),
):
    if value not in valid:
        raise OptionError(f"{variable}={value!r} is not valid: expected one of {', '.join(valid)}")


class NinjaBuildExt(build_ext):
    """Writes one build.ninja for all native parts and runs ninja on it."""

    def build_extensions(self) -> None:
        targets = {e.name: Path(self.get_ext_fullpath(e.name)).resolve() for e in self.extensions}
        if "hk_backend._emulator" in targets:
            targets[HIP_LIBRARY] = targets["hk_backend._emulator"].with_name(HIP_LIBRARY)
        build = Path(self.build_temp).resolve()
        build.mkdir(parents=True, exist_ok=True)
        for target in targets.values():
            target.parent.mkdir(parents=True, exist_ok=True)
        (build / "build.ninja").write_text(ninja_file(targets))
        subprocess.run([*ninja_command(), "-C", str(build)], check=True)

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        library = Path(self.build_lib) / "hk_backend" / HIP_LIBRARY
        if NATIVE == "all" and library.exists():  # an in-place build puts it beside the extensions
            shutil.copy2(library, ROOT / "hk_backend" / HIP_LIBRARY)


class CompleteWheel(bdist_wheel):
    """Refuses to build a wheel without all native parts; editable installs do not come here."""

    def run(self) -> None:
        if NATIVE != "all":
            raise OptionError(
                f"HK_NATIVE={NATIVE} is for editable installs (pip install -e): "
                "a wheel has all parts"
            )
        super().run()


def ninja_command() -> list[str]:
    import ninja

    return [str(Path(ninja.BIN_DIR) / "ninja")]


@dataclass
class Ninja:
    """The text of a build.ninja."""

    lines: list[str] = field(default_factory=list)

    def compile(self, name: str, source: Path, flags: str = "") -> str:
        self.lines.append(f"build {name}.o: cxx {escape(source)}\n  flags = {flags}")
        return f"{name}.o"

    def link(self, target: Path, objects: list[str], libraries: str) -> None:
        self.lines.append(
            f"build {escape(target)}: link {' '.join(objects)}\n  libraries = {libraries}"
        )


def ninja_file(targets: dict[str, Path]) -> str:
    import pybind11

    includes = f"-I{sysconfig.get_path('include')} -I{pybind11.get_include()}"
    ninja = Ninja(
        [
            "rule cxx",
            f"  command = c++ {COMMON} {includes} $flags -MD -MF $out.d -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "rule link",
            "  command = c++ -shared $in -o $out.new $libraries && mv $out.new $out",
        ]
    )
    ninja.link(targets["hk_backend._cpu"], cpu_objects(ninja), "-ldl")
    if HIP_LIBRARY in targets:
        common, python, hip = emulator_objects(ninja)
        ninja.link(targets["hk_backend._emulator"], common + python, "-pthread")
        ninja.link(targets[HIP_LIBRARY], common + hip, "-pthread")
    ninja.link(targets["hk_backend._hip"], launcher_objects(ninja), "-ldl")
    return "\n".join(ninja.lines) + "\n"


def cpu_isas() -> list[str]:
    """The instruction sets that the host kernels are compiled for."""
    if LEVELS == "all":
        return list(ISA_FLAGS)
    ours = macros("-march=native")
    return [isa for isa, flags in ISA_FLAGS.items() if macros(flags) <= ours]


def macros(flags: str) -> set[str]:
    """Macros that the compiler defines for the instructions that `flags` let it use."""
    command = ["c++", *flags.split(), "-dM", "-E", "-x", "c++", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # other macros name the tuning: -march=native may define __znver5 instead of __k8
    return set(re.findall(r"^#define (__(?:SSE|AVX|AMX|FMA|F16C)\w*) 1$", done.stdout, re.M))


def cpu_objects(ninja: Ninja) -> list[str]:
    shared = f"-I{CPU.resolve()}"
    isas = cpu_isas()
    objects = []
    for source in sorted(CPU.rglob("*.cpp")):
        if source.name.endswith("_kernel.cpp"):
            for isa in isas:
                flags = f"{shared} {CPU_KERNEL} {ISA_FLAGS[isa]} -DHK_ISA={isa}"
                objects.append(ninja.compile(f"{source.stem}_{isa}", source, flags))
            continue
        flags = shared
        if source.name.startswith("bindings"):
            flags += f" {COLD}"
        elif source.stem == "instruction_sets":  # a new level recompiles no other file
            flags += f" '-DHK_CPU_LEVELS={' '.join(f'LEVEL({isa})' for isa in isas)}'"
        objects.append(ninja.compile(source.stem, source, flags))
    return objects


def emulator_objects(ninja: Ninja) -> tuple[list[str], list[str], list[str]]:
    """Objects of both libraries, of the Python module alone, and of the HIP library alone."""
    common, python, hip = [], [], []
    shared = f"-I{EMULATOR.resolve()}"
    if "avx2" in EMULATOR_ISAS:
        shared += " -DHK_EMULATOR_AVX2"
    for source in sorted(EMULATOR.rglob("*.cpp")):
        name = source.stem
        if name == "lanes" or name.startswith(("semantics_vector", "semantics_matrix")):
            for isa in EMULATOR_ISAS:
                flags = f"{SEMANTICS} {shared} {ISA_FLAGS[isa]} -DHK_ISA={isa}"
                if isa != EMULATOR_ISAS[-1]:
                    flags += f" {COLD}"
                common.append(ninja.compile(f"emulator_{name}_{isa}", source, flags))
            continue
        group = (
            python
            if name.startswith("bindings")
            else hip
            if source.parent.name == "hip"
            else common
        )
        flags = f"{SEMANTICS} {EMULATOR_WARNINGS} {shared}"
        if group is not common:
            flags += f" {COLD}"
        group.append(ninja.compile(f"emulator_{name}", source, flags))
    return common, python, hip


def launcher_objects(ninja: Ninja) -> list[str]:
    arguments = f"-I{(ROOT / 'csrc' / 'include').resolve()}"  # the kernels' structs and grids
    # without NDEBUG pybind11 asks for the GIL at each reference: a quarter of a launch's time
    flags = f"{arguments} -DNDEBUG"
    sources = sorted(HIP.glob("*.cpp"))
    return [ninja.compile(f"hip_{source.stem}", source, flags) for source in sources]


def package_names(folder: Path) -> list[str]:
    """Every package at and below `folder`, by its dotted name."""
    inits = sorted(folder.rglob("__init__.py"))
    return [".".join(init.parent.relative_to(folder.parent).parts) for init in inits]


def escape(path: Path) -> str:
    return str(path.resolve()).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


setup(
    packages=[
        *package_names(ROOT / "hk_backend"),
        *package_names(ROOT / "integration" / "hk_sglang"),
        *package_names(ROOT / "integration" / "hk_vllm"),
    ],
    package_dir={"hk_sglang": "integration/hk_sglang", "hk_vllm": "integration/hk_vllm"},
    package_data={
        "hk_backend": ["py.typed", "*.pyi"],
        "hk_backend.kernels": ["*.json", "codeobjects/*/*", "codeobjects/measure/*/*"],
        "hk_backend.lab.timing.hardware": ["*.json"],
        "hk_sglang": ["py.typed"],
        "hk_vllm": ["py.typed"],
    },
    include_package_data=False,  # otherwise folders of data would be taken for packages
    ext_modules=[Extension(f"hk_backend.{name}", sources=[]) for name in EXTENSIONS[NATIVE]],
    cmdclass={"build_ext": NinjaBuildExt, "bdist_wheel": CompleteWheel},
)
