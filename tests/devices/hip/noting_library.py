"""A HIP library that launches nothing, and notes what it was asked to launch."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from hk_backend.devices.hip.library import HipLibrary

SOURCE = r"""
#include <cstddef>
#include <cstring>
extern "C" {
struct Note {
  unsigned grid[3], block, dynamic_lds;
  void *function, *stream;
  size_t bytes;
  unsigned char argument[1024];
} note;
const void* image;

int hipGetDeviceCount(int* count) { return *count = 1, 0; }
int hipGetDevice(int* device) { return *device = 0; }
int hipSetDevice(int) { return 0; }
int hipGetDevicePropertiesR0600(char* properties, int) {
  std::strcpy(properties + 1160, "gfx950:sramecc+:xnack-");  // gcnArchName
  return 0;
}
int compute_units = 256;
int hipDeviceGetAttribute(int* value, int attribute, int) {
  *value = compute_units;
  return attribute != 63;  // hipDeviceAttributeMultiprocessorCount
}
int hipStreamGetDevice(void*, int* device) { return *device = 0; }
int hipStreamIsCapturing(void*, int* status) { return *status = 0; }
int hipStreamSynchronize(void*) { return 0; }
int hipModuleLoadData(void** module, const void* data) {
  *module = const_cast<void*>(image = data);
  return 0;
}
int hipModuleGetFunction(void** function, void* module, const char*) {
  *function = module;
  return 0;
}
int hipFuncSetAttribute(void*, int, int) { return 0; }
int hipModuleLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                          unsigned, unsigned, unsigned lds, void* stream, void**, void** extra) {
  note = {{x, y, z}, block_x, lds, function, stream, *static_cast<size_t*>(extra[3]), {}};
  std::memcpy(note.argument, extra[1], note.bytes);
  return 0;
}
int hipGetLastError() { return 0; }
const char* hipGetErrorName(int) { return ""; }
const char* hipGetErrorString(int) { return ""; }
}
"""


class Note(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint),
        ("dynamic_lds", ctypes.c_uint),
        ("function", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("argument", ctypes.c_ubyte * 1024),
    )


class NotingLibrary(HipLibrary):
    """`note`: the last launch; `argument`: its struct; `set_compute_units`: of its one device."""

    def __init__(self, folder: Path) -> None:
        source, path = folder / "noting.cpp", folder / "libnoting.so"
        source.write_text(SOURCE)
        command = ["c++", "-O1", "-shared", "-fPIC", str(source), "-o", str(path)]
        subprocess.run(command, check=True)
        super().__init__(str(path), load=True)
        self._dll = ctypes.CDLL(str(path))
        self.note = Note.in_dll(self._dll, "note")

    def set_compute_units(self, count: int) -> None:
        ctypes.c_int.in_dll(self._dll, "compute_units").value = count

    @property
    def argument(self) -> bytes:
        return bytes(self.note.argument)[: self.note.bytes]

    @property
    def image(self) -> int:
        """The address of the code object that was loaded last."""
        return ctypes.c_void_p.in_dll(self._dll, "image").value or 0
