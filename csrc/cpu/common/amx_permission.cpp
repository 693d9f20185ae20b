#include "common/amx_permission.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#endif

namespace hk::cpu {
namespace {

#if defined(__x86_64__)

bool processor_has_tiles() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  return (edx & (kBf16 | kTile)) == (kBf16 | kTile);
}

// Whether CPUID has the palette of tiles (leaf 0x1D). Some virtual machines advertise AMX but hide
// this leaf, and cannot configure tiles.
bool machine_has_palette() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(0x1d, 1, &eax, &ebx, &ecx, &edx)) return false;
  const unsigned tiles = ebx >> 16, row_bytes = ebx & 0xffff, rows = ecx & 0xffff;
  return tiles >= 8 && row_bytes >= 64 && rows >= 16;
}

std::string ask() {
  if (!processor_has_tiles()) return "this processor has no AMX for bfloat16";
  if (!machine_has_palette()) return "this machine hides AMX's palette (CPUID leaf 0x1D)";
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return "";
  return std::string("the kernel does not permit AMX tiles (arch_prctl: ") + std::strerror(errno) +
         ")";
}

#else

std::string ask() { return "this processor has no AMX"; }

#endif

}  // namespace

const std::string& why_no_amx() {
  static const std::string why = ask();
  return why;
}

}  // namespace hk::cpu
