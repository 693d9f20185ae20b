// Code objects: the ELF files that the compiler makes and the driver loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "isa/instruction.hpp"

namespace hk::emulator {

// The file is not an AMD GPU code object, is truncated, for another arch, or not emulated.
struct LoadError : std::runtime_error {
  explicit LoadError(std::string message) : std::runtime_error(printable(std::move(message))) {}

 private:
  // Replaces unprintable characters, since a damaged file's names may hold any bytes.
  static std::string printable(std::string text) {
    for (char& c : text)
      if (c < ' ' || c > '~') c = '?';
    return text;
  }
};

struct KernelArgument {
  std::string name, kind;  // kind, in the metadata's words: by_value, global_buffer, hidden_...
  uint32_t offset = 0, size = 0;
};

struct Program;
// The program that machines prepare from a code object's text, once for all (machine/prepared.hpp).
struct OnceProgram {
  std::once_flag once;
  std::shared_ptr<const Program> program;
};

// A kernel's descriptor (LLVM AMDGPU usage, "Kernel Descriptor") and metadata.
struct Kernel {
  std::string name;
  Arch arch = Arch::gfx950;
  uint32_t static_lds = 0, scratch = 0, kernarg_size = 0, max_block = 0;
  uint32_t vgprs = 0, agprs = 0, sgprs = 0;  // allocated numbers of registers
  uint32_t vgpr_spills = 0, sgpr_spills = 0;
  uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
  uint16_t properties = 0;       // kernel code properties: the SGPRs that are set up
  uint16_t kernarg_preload = 0;  // length in the low 7 bits, offset above
  std::vector<KernelArgument> arguments;
  uint64_t entry = 0;  // byte offset in .text
  // The whole .text section, decoded. The instruction at byte p of the section has the index
  // index_of_pc[p / 4]; -1: no instruction begins there.
  std::shared_ptr<const std::vector<Instruction>> text;
  std::shared_ptr<const std::vector<int32_t>> index_of_pc;
  std::shared_ptr<OnceProgram> prepared;                  // one for all kernels of the text
  std::shared_ptr<const std::vector<std::string>> lines;  // file:line per instruction, or null
};

class CodeObject {
 public:
  // Loads a code object; throws LoadError. `lines`: file with the line tables of a stripped `elf`,
  // or empty.
  static std::shared_ptr<CodeObject> load(std::span<const std::byte> elf,
                                          std::span<const std::byte> lines = {});
  Arch arch() const { return arch_; }
  const std::vector<Kernel>& kernels() const { return kernels_; }
  const Kernel& kernel(const std::string& name) const;  // throws std::out_of_range

 private:
  Arch arch_ = Arch::gfx950;
  std::vector<Kernel> kernels_;
};

}  // namespace hk::emulator
