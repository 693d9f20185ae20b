"""Files that hold code objects: ELF files, and bundles of several archs as hipcc writes them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hk_backend.lab.foreign.object_file import BUNDLE, ObjectError, load
from hk_backend.lab.toolchain.elf import Elf
from tests.emulator.assembly import assemble_all
from tests.lab.foreign.scale import SCALE, UNWAITED, write
from tests.processes import finished

HOST = "host-x86_64-unknown-linux-gnu-"
BUNDLER = "clang-offload-bundler-22"


def bundle(folder: Path, *archs: str) -> Path:
    """A bundle that clang's own tool makes; the host's part is empty, as in hipcc's."""
    host, out = folder / "host", folder / "bundle.hipfb"
    host.touch()
    inputs = [host] + [
        write(folder / f"{a.partition(':')[0]}.co", SCALE, arch=a[:6]) for a in archs
    ]
    targets = ",".join([HOST, *(f"hipv4-amdgcn-amd-amdhsa--{arch}" for arch in archs)])
    options = ("-type=o", f"-targets={targets}", f"-output={out}")
    finished(BUNDLER, *options, *(f"-input={path}" for path in inputs), check=True)
    return out


def test_the_kernel_of_a_file(tmp_path: Path) -> None:
    one = load(write(tmp_path / "one.co", SCALE))
    assert one.kernel("").name == one.kernel("k").name == "k"
    with pytest.raises(ObjectError, match=r"'x'; valid: k$"):
        one.kernel("x")
    two = load(write(tmp_path / "two.co", SCALE, UNWAITED))
    assert two.kernel("k1").name == "k1"
    with pytest.raises(ObjectError, match="it is missing; valid: k, k1"):
        two.kernel("")


def test_a_bundle(tmp_path: Path) -> None:
    both = bundle(tmp_path, "gfx942:sramecc+:xnack-", "gfx950")
    assert both.read_bytes().startswith(BUNDLE)
    for arch in ("gfx942", "gfx950"):
        assert load(both, arch).kernel("").arch == arch
    with pytest.raises(ObjectError, match="--arch for several archs; valid: gfx942, gfx950"):
        load(both)
    with pytest.raises(ObjectError, match="--arch for 'gfx90a'; valid: gfx942, gfx950"):
        load(both, "gfx90a")
    assert load(bundle(tmp_path, "gfx942")).kernel("").arch == "gfx942"


def test_damaged_bundles(tmp_path: Path) -> None:
    data, path = bundle(tmp_path, "gfx950").read_bytes(), tmp_path / "damaged"
    ends = range(len(BUNDLE), len(BUNDLE) + 8 + 3 * 8 + len(HOST) + 3 * 8)
    for end in ends:
        path.write_bytes(data[:end])
        with pytest.raises(ObjectError, match="a damaged bundle"):
            load(path)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ObjectError):
        load(path)
    path.write_bytes(BUNDLE + struct.pack("<Q", 0))
    with pytest.raises(ObjectError, match="valid: none"):
        load(path)
    path.write_bytes(b"CCOB" + bytes(100))
    with pytest.raises(ObjectError, match=r"compressed bundle; valid: .*--no-offload-compress"):
        load(path)


def test_what_is_no_code_object(tmp_path: Path) -> None:
    path = tmp_path / "x.co"
    for data in (b"", b"\x7fELF", b"text"):
        path.write_bytes(data)
        with pytest.raises(ObjectError, match=rf"^{path}: "):
            load(path)


def test_unreadable_line_tables_do_not_keep_a_kernel_from_running(tmp_path: Path) -> None:
    code = assemble_all((SCALE,), "gfx950")
    path = tmp_path / "x.co"
    broken = bytearray(code)
    struct.pack_into("<H", broken, Elf(code).sections[".debug_line"].offset + 4, 7)
    path.write_bytes(broken)
    found = load(path)
    assert found.note.endswith("is of DWARF version 7: 4 or 5 expected")
    assert found.kernel("").lines == {}
    path.write_bytes(code)
    assert load(path).note == ""
    assert "/kernels/scale.s:12" in load(path).kernel("").lines.values()
