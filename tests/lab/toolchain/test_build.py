"""The build of the kernels: its reading of a kernel's code, its refusals, and its index."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hk_backend.kernels import catalogue
from hk_backend.kernels.index import records
from hk_backend.lab.toolchain import build, compiler
from hk_backend.lab.toolchain.compiler import Toolchain, ToolchainError
from hk_backend.lab.toolchain.debug_info import DebugInfoError
from hk_backend.lab.toolchain.sources import SOURCES, SourceError
from tests.kernels.sources import ARCH, COPY, Source, compile_kernel, write


def kernel(root: Path, tools: Toolchain, **changes: Any) -> dict[str, Any]:
    return compile_kernel(root, Source(**changes), tools)[0]


def test_fields_are_those_of_the_struct(tmp_path: Path, tools: Toolchain) -> None:
    body = """
using Count = const long long;
struct Args { const float* x; float* y; void* z; const bf16x8* w; int n; bool flag; unsigned u;
              long stride; Count count; float scale; unsigned long mask;
              static constexpr int kRows = 4; };
__device__ void run(const Args& a) { if (a.n) *a.y = *a.x; }
"""
    arguments = kernel(tmp_path, tools, body=body)["arguments"]
    assert [(f["name"], f["type"], f["offset"]) for f in arguments["fields"]] == [
        ("x", "pointer", 0),
        ("y", "pointer", 8),
        ("z", "pointer", 16),
        ("w", "pointer", 24),
        ("n", "int32", 32),
        ("flag", "bool", 36),
        ("u", "uint32", 40),
        ("stride", "int64", 48),
        ("count", "int64", 56),
        ("scale", "float32", 64),
        ("mask", "uint64", 72),
    ]
    assert arguments["size"] == 80


def test_info_and_resources(tmp_path: Path, tools: Toolchain) -> None:
    body = """
struct Args { float* y; int n; };
__device__ void run(const Args& a) {
  __shared__ float fixed[512];
  const int lane = __builtin_amdgcn_workitem_id_x();
  fixed[lane] = a.n;
  __builtin_amdgcn_s_barrier();
  a.y[lane] = fixed[lane ^ 1];
}"""
    info = '{16, 32, 64, 1024, 5, "gemm", "test"}'
    entry = kernel(tmp_path, tools, body=body, info=info, threads=512)
    assert entry["block"] == 512
    assert (entry["static_lds"], entry["dynamic_lds"]) == (2048, 1024)
    assert entry["tile"] == {"rows": 16, "columns": 32, "depth": 64}
    assert entry["grid"] == "gemm"
    assert entry["step_flops"] == 5
    assert entry["spills"] == entry["scratch"] == entry["agpr"] == 0


def test_facts_are_those_of_the_struct(tmp_path: Path, tools: Toolchain) -> None:
    body = "struct Facts { char dtype[16]; int head_size; bool paged, causal; };" + COPY
    info = '{1, 2, 3, 0, 0, "measure", "test", {"bf16", 64, true, false}}'
    entry = kernel(tmp_path, tools, body=body, info=info, facts="k::Facts")
    assert entry["facts"] == {"dtype": "bf16", "head_size": 64, "paged": True, "causal": False}


def test_spills_and_scratch_are_seen(tmp_path: Path, tools: Toolchain) -> None:
    """128 registers are live, and eight waves of a SIMD leave each wave 64."""
    body = """
struct Args { const float* x; float* y; int n; };
__device__ void run(const Args& a) {
  const int lane = __builtin_amdgcn_workitem_id_x();
  float v[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) v[i] = a.x[i * 64 + lane];
  for (int k = 0; k < a.n; ++k)
#pragma unroll
    for (int i = 0; i < 128; ++i) v[i] = v[i] * v[(i * 5 + 3) % 128] + k;
#pragma unroll
  for (int i = 0; i < 128; ++i) a.y[i * 64 + lane] = v[i];
}"""
    entry = kernel(tmp_path, tools, body=body, threads=1024)
    assert entry["spills"] > 0
    assert entry["scratch"] > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"body": "struct Args { double x; }; __device__ void run(const Args&) {}"},
            "x is a double",
        ),
        ({"parameters": "int n", "call": "(void)n;"}, "small must take one struct by value"),
        (
            {"parameters": "k::Args args, int n", "call": "args.n = n;"},
            "one struct and nothing hidden",
        ),
        ({"parameters": "", "call": ""}, "one struct and nothing hidden"),
        ({"info": '{1, 2, 3, 0, 0, "n", "test"}'}, "no function 'n'"),
        ({"info": '{1, 0, 3, 0, 0, "gemm", "test"}'}, "an empty tile"),
        (
            {"info": '{1, 2, 3, 0, 0, "gemm", "a b"}'},
            "operator_name 'a b' is not an identifier",
        ),
        ({"info": '{1, 2, 3, 0, 0, "gemm", ""}'}, "operator_name '' is not an identifier"),
        ({"call": "args.n = missing;"}, "undeclared identifier 'missing'"),
    ],
)
def test_what_must_not_ship_is_refused(
    tmp_path: Path, tools: Toolchain, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message) as error:
        kernel(tmp_path, tools, **changes)
    assert isinstance(error.value, (build.BuildError, DebugInfoError, ToolchainError, ValueError))


def test_hidden_arguments_are_refused(tmp_path: Path, tools: Toolchain) -> None:
    """The grid's size in threads is a hidden argument."""
    body = COPY.replace("*a.y = *a.x", "*a.y = *(int*)__builtin_amdgcn_implicitarg_ptr()")
    with pytest.raises(
        build.BuildError, match="nothing hidden, not: by_value, hidden_block_count_x"
    ):
        kernel(tmp_path, tools, body=body)


def test_an_old_compiler_is_refused_with_the_remedy(tmp_path: Path) -> None:
    old = tmp_path / "clang++"
    old.write_text("#!/bin/sh\necho 'clang version 19.1.7'\n")
    old.chmod(0o755)
    with pytest.raises(ToolchainError, match=r"clang version 19.*apt-get install clang-22"):
        compiler.find(str(old))
    with pytest.raises(ToolchainError, match=r"there is no no-such-clang.*apt-get install"):
        compiler.find("no-such-clang")


@pytest.mark.parametrize(
    ("version", "added"),
    [
        ("Debian clang version 22.1.8 (1~deb12u1)", ()),
        ("Debian clang version 23.1.4 (2)", ("-fno-slp-vectorize",)),
        ("AMD clang version 24.0.0git", ("-fno-slp-vectorize",)),
    ],
)
def test_flags_for_a_newer_compiler(version: str, added: tuple[str, ...]) -> None:
    assert build.flags_for(Toolchain(Path("clang++"), version)) == (*build.FLAGS, *added)


def test_what_a_kernel_keeps_apart_stays_apart(tmp_path: Path, tools: Toolchain) -> None:
    """Two float32 instructions do not become a packed one (clang 23 would make it)."""
    body = """
struct Args { float2* x; float factor, offset; };
__device__ void run(const Args& a) {
  float2& both = a.x[__builtin_amdgcn_workitem_id_x()];
  const float first = __builtin_elementwise_fma(both[0], a.factor, a.offset);
  const float second = __builtin_elementwise_fma(both[1], a.factor, a.offset);
  both = float2{__builtin_amdgcn_exp2f(first), __builtin_amdgcn_exp2f(second)};
}"""
    body = "using float2 = __attribute__((ext_vector_type(2))) float;" + body
    code = compile_kernel(tmp_path, Source(body=body), tools)[1]
    names = [instruction.mnemonic.removesuffix("_e32") for instruction in code.instructions]
    assert not [name for name in names if name.startswith("v_pk_")]
    assert len([name for name in names if re.match("v_fma", name)]) == 2


def test_a_tool_that_does_not_finish_is_an_error(tmp_path: Path) -> None:
    tool = tmp_path / "llvm-mca"
    tool.write_text("#!/bin/sh\nexec sleep 1000\n")
    tool.chmod(0o755)
    with pytest.raises(ToolchainError, match=r"llvm-mca did not finish within 0\.1 s"):
        Toolchain(tmp_path / "clang++", "clang version 22").run("llvm-mca", timeout=0.1)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main(["--output", str(tmp_path), "--compiler", "no-such-clang"]) == 1
    assert "apt-get install" in capsys.readouterr().err
    monkeypatch.setattr(build, "ROOT", write(tmp_path / "tree", Source(), Source(name="other")))
    assert build.main(["--output", str(tmp_path / "out")]) == 0
    names = [entry.name for entry in catalogue(ARCH, tmp_path / "out").kernels]
    assert names == ["other", "small"]
    assert "other, small" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "does not say which arches it is for: HK_ARCHES(...); takes some of gfx942, gfx950"),
        ("HK_ARCHES(gfx950, gfx9);", "is for gfx950, gfx9: HK_ARCHES(...); takes some of gfx942"),
    ],
)
def test_a_source_names_known_arches(tmp_path: Path, line: str, message: str) -> None:
    folder = tmp_path / SOURCES
    folder.mkdir(parents=True)
    (folder / "small.hip").write_text(f"{line}\n")
    with pytest.raises(SourceError, match=re.escape(message)):
        build.build(ARCH, tmp_path / "out", compiler.find(), root=tmp_path)


@pytest.mark.parametrize("arches", ["gfx942", "gfx94, xgfx950, gfx9500"])
def test_the_compiler_refuses_an_arch_that_a_source_does_not_name(
    tmp_path: Path, tools: Toolchain, arches: str
) -> None:
    with pytest.raises(ToolchainError, match=f"this source is built for {arches} alone"):
        compile_kernel(tmp_path, Source(arches=arches), tools)


# --- what an index keeps of the one before --------------------------------------------------------


def test_a_source_alone_leaves_the_others(tmp_path: Path, tools: Toolchain) -> None:
    """One source is changed and built: the index keeps the records of another source of the same
    operator. A source that is gone leaves nothing."""
    root = write(tmp_path, Source(name="a"), Source(name="b"), Source(name="gone"))
    folder = tmp_path / "out" / ARCH
    build.build(ARCH, folder, tools, root=root)
    first = recorded(folder)
    path = root / SOURCES / "a.hip"
    path.write_text(path.read_text().replace("{1, 2, 3,", "{4, 2, 3,"))
    (root / SOURCES / "gone.hip").unlink()
    build.build(ARCH, folder, tools, [path.relative_to(root)], root=root)
    second = recorded(folder)
    assert {name: record["tile"]["rows"] for name, record in second.items()} == {"a": 4, "b": 1}
    assert second["b"] == first["b"]
    assert len(json.loads((folder / "test.json").read_text())["structs"]) == 1
    names = {f"{name}.{end}" for name in "ab" for end in ("co", "lines")}
    assert {path.name for path in folder.iterdir()} == names | {"test.json"}


def recorded(folder: Path) -> dict[str, Any]:
    """The records of the index in a folder, by kernel; each kernel is in the code object of its
    name."""
    index = json.loads((folder / "test.json").read_text())
    found = list(records(index))
    assert [code_object for code_object, _, _ in found] == [name for _, name, _ in found]
    return {
        name: {**record, "arguments": index["structs"][record["arguments"]]}
        for _, name, record in found
    }


def test_what_kernels_share_is_said_once(tmp_path: Path, tools: Toolchain) -> None:
    """Whole records are read back from the index. A kernel of another tile states its tile
    alone."""
    root = write(tmp_path, Source(name="a"), Source(name="b"))
    other = Source(name="c", info='{4, 2, 3, 0, 0, "measure", "test"}')
    (root / SOURCES / "c.hip").write_text(other.text())
    folder = tmp_path / "out" / ARCH
    build.build(ARCH, folder, tools, root=root)
    index = json.loads((folder / "test.json").read_text())
    files = index["code_objects"]
    assert {name: file["shared"] for name, file in files.items()} == {
        name: {"tile": {"rows": rows}} for name, rows in (("a", 1), ("b", 1), ("c", 4))
    }
    assert all(file["kernels"] == {name: {}} for name, file in files.items())
    found = recorded(folder)
    assert found["a"] == found["b"]
    assert found["a"] == {**found["c"], "tile": {**found["c"]["tile"], "rows": 1}}


def test_a_run_is_repeated_for_another_code_alone(
    tmp_path: Path, tools: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment changes no instruction, and so repeats no run; another operation does."""
    root = write(tmp_path, Source())
    folder, source = tmp_path / "out" / ARCH, root / SOURCES / "small.hip"
    text = source.read_text()

    def built(text: str, factor: float) -> Any:
        monkeypatch.setattr(build, "conflict_factor", lambda entry, tools: factor)
        source.write_text(text)
        build.build(ARCH, folder, tools, root=root)
        return recorded(folder)["small"]["figures"]["bank_conflict_factor"]

    assert built(text, 1.0) == 1.0
    assert built(f"// a comment\n{text}", 2.0) == 1.0
    assert built(text.replace("*a.y = *a.x", "*a.y = 2"), 3.0) == 3.0
