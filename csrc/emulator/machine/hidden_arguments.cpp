#include "machine/hidden_arguments.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "isa/encoding.hpp"

namespace hk::emulator {
namespace {

// Absent pointers lie past the last slot of memory (memory.hpp), 8 GiB apart.
constexpr Address kFirstAbsent = Address(1) << 47;
constexpr int kAbsentBits = 33;

constexpr const char* kAbsentNames[] = {
    "the queue pointer", "the hostcall buffer", "the printf buffer",    "the multigrid argument",
    "the heap",          "the default queue",   "the completion action"};
static_assert(std::size(kAbsentNames) == size_t(Absent::count));

constexpr std::string_view kHidden = "hidden_";

struct NamedPointer {
  std::string_view kind;
  Absent pointer;
};
constexpr NamedPointer kPointers[] = {
    {"queue_ptr", Absent::queue},
    {"hostcall_buffer", Absent::hostcall_buffer},
    {"printf_buffer", Absent::printf_buffer},
    {"multigrid_sync_arg", Absent::multigrid_sync},
    {"heap_v1", Absent::heap},
    {"default_queue", Absent::default_queue},
    {"completion_action", Absent::completion_action},
};

struct Values {
  const Dim3& grid;
  const Dim3& block;
  size_t dynamic_lds;

  // Finds the value of a hidden argument by its kind without the prefix; false: LLVM has no such.
  bool find(std::string_view kind, uint64_t& value) const {
    value = 0;
    if (kind == "none") return true;
    if (kind == "grid_dims") return value = 3, true;  // HIP launches in three dimensions
    if (kind == "dynamic_lds_size") return value = dynamic_lds, true;
    if (kind == "private_base") return value = kPrivateAperture >> 32, true;
    if (kind == "shared_base") return value = kSharedAperture >> 32, true;
    for (const NamedPointer& named : kPointers)
      if (kind == named.kind) return value = address_of(named.pointer), true;
    if (kind.size() < 2 || kind[kind.size() - 2] != '_') return false;
    const size_t axis = size_t(kind.back() - 'x');
    if (axis > 2) return false;
    kind.remove_suffix(2);
    if (kind == "block_count") return value = grid[axis], true;
    if (kind == "group_size") return value = block[axis], true;
    return kind == "remainder" || kind == "global_offset";  // launches are whole, and begin at 0
  }
};

bool is_hidden(const KernelArgument& argument) { return argument.kind.starts_with(kHidden); }

}  // namespace

Address address_of(Absent pointer) {
  return kFirstAbsent + (Address(pointer) << kAbsentBits) + (Address(1) << (kAbsentBits - 1));
}

const char* absent_at(Address at) {
  const Address number = (at - kFirstAbsent) >> kAbsentBits;
  return at >= kFirstAbsent && number < Address(Absent::count) ? kAbsentNames[number] : nullptr;
}

uint32_t declared_bytes(const Kernel& kernel) {
  uint32_t first_hidden = kernel.kernarg_size;
  uint32_t end = 0;
  for (const KernelArgument& argument : kernel.arguments) {
    if (is_hidden(argument))
      first_hidden = std::min(first_hidden, argument.offset);
    else
      end = std::max(end, argument.offset + argument.size);
  }
  return first_hidden == kernel.kernarg_size ? kernel.kernarg_size : end;
}

std::vector<std::byte> with_hidden_arguments(const Kernel& kernel, const Dim3& grid,
                                             const Dim3& block, size_t dynamic_lds,
                                             std::span<const std::byte> declared) {
  std::vector<std::byte> bytes(declared.begin(), declared.end());
  bytes.resize(std::max<size_t>(bytes.size(), kernel.kernarg_size));
  const Values values{grid, block, dynamic_lds};
  for (const KernelArgument& argument : kernel.arguments) {
    uint64_t value = 0;
    if (!is_hidden(argument)) continue;
    values.find(std::string_view(argument.kind).substr(kHidden.size()), value);
    std::memcpy(&bytes[argument.offset], &value, std::min<size_t>(argument.size, sizeof value));
  }
  return bytes;
}

void check_hidden_arguments(const Kernel& kernel) {
  const Values values{{1, 1, 1}, {1, 1, 1}, 0};
  for (const KernelArgument& argument : kernel.arguments) {
    uint64_t value = 0;
    if (is_hidden(argument) &&
        !values.find(std::string_view(argument.kind).substr(kHidden.size()), value))
      throw std::invalid_argument("kernel '" + kernel.name + "' needs the hidden argument '" +
                                  argument.kind + "', which the emulator does not provide");
  }
}

}  // namespace hk::emulator
