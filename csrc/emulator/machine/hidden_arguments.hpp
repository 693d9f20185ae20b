// Hidden arguments: those that the runtime appends to a kernel's own, and the pointers among them
// that no emulator can honour (LLVM AMDGPU usage, "Code Object V5 Metadata").
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "machine/machine.hpp"

namespace hk::emulator {

// Pointers that a kernel may ask for and that lead to nothing here. Each has its own address in
// unmapped memory: only a kernel that reads through one gets a finding.
enum class Absent {
  queue,
  hostcall_buffer,
  printf_buffer,
  multigrid_sync,
  heap,
  default_queue,
  completion_action,
  count
};
Address address_of(Absent pointer);
// Name of the absent pointer through which an access at `at` goes; null: none.
const char* absent_at(Address at);

// Bytes of arguments that the caller of a launch gives; hidden ones follow them.
uint32_t declared_bytes(const Kernel& kernel);
// Returns all bytes of a kernel's arguments: those of the caller, and the values of hidden ones.
std::vector<std::byte> with_hidden_arguments(const Kernel& kernel, const Dim3& grid,
                                             const Dim3& block, size_t dynamic_lds,
                                             std::span<const std::byte> declared);
// Throws std::invalid_argument if the kernel lists a hidden argument that LLVM does not define.
void check_hidden_arguments(const Kernel& kernel);

}  // namespace hk::emulator
