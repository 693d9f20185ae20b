// Parts of an ELF64 file for AMD GPUs that the emulator needs.
#pragma once

#include <string>
#include <vector>

#include "isa/byte_reader.hpp"

namespace hk::emulator {

struct Section {
  std::string name;
  uint32_t type = 0, link = 0;
  uint64_t address = 0;
  Bytes bytes;  // empty for SHT_NOBITS
};

struct Symbol {
  std::string name;
  uint64_t address = 0, size = 0;
};

struct Elf {
  Arch arch;
  std::vector<Section> sections;
  std::vector<Symbol> symbols;  // symbols of .symtab, or of .dynsym if .symtab is stripped

  const Section* find(std::string_view name) const;     // null if absent
  const Section& section(std::string_view name) const;  // throws LoadError if absent
  Bytes at_address(uint64_t address, uint64_t size, const std::string& what) const;  // LoadError
};

Elf read_elf(Bytes file);  // LoadError

}  // namespace hk::emulator
